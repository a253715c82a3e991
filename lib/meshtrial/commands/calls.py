"""``meshtrial calls``: describe a running system by the metrics of its mesh, for ``meshtrial predict``."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from meshtrial.errors import MeshtrialError
from meshtrial.prediction.observed import Name, observe, replicas_of
from meshtrial.prediction.prometheus import Prometheus, read_token

EXAMPLES = """\
examples:
  kubectl -n istio-system port-forward service/prometheus 9090 &
  meshtrial calls --prometheus http://localhost:9090 --range 1h \\
      --namespace shop > shop.yaml
  meshtrial predict shop.yaml --from data/studies/building_blocks/MONDAY

The comments of the file say what these metrics do not count."""
_PODS_WAIT_S = 10.0


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("--prometheus", required=True, metavar="URL", help="address of the Prometheus that scrapes the proxies")
    option("--range", dest="window", default="1h", metavar="TIME", help="window of the mean rates, to now (default 1h)")
    option("--namespace", nargs="+", default=[], metavar="NAME", help="only calls from or to these (default: all)")
    option("--token-file", type=Path, metavar="FILE", help="file with a bearer token for the Prometheus")
    option("--timeout", type=float, default=30.0, metavar="S", help="seconds to wait for an answer (default 30)")
    option("--context", default="", help="context whose pods are counted as replicas (default: the current one)")
    option("--kubeconfig", default="", metavar="FILE", help="kubeconfig file (default: KUBECONFIG or ~/.kube/config)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    token = read_token(arguments.token_file) if arguments.token_file else ""
    prometheus = Prometheus(arguments.prometheus, token, arguments.timeout)
    observed = observe(prometheus, arguments.window, arguments.namespace)
    replicas, note = _replicas(arguments.kubeconfig, arguments.context, observed.names)
    for line in (*observed.notes, note):
        print(f"# {line}", file=out)
    print(observed.system(replicas).to_yaml(), end="", file=out)
    return 0


def _replicas(kubeconfig: str, context: str, services: Iterable[Name]) -> tuple[dict[Name, int], str]:
    """Return the running pods of each service, and a note on them.

    An unreachable cluster is an error only if the user named it.
    """
    # Importing the Kubernetes client takes a second.
    from meshtrial.testbed.kubernetes.client import Cluster

    namespaces = sorted({one.namespace for one in services} - {""})
    try:
        cluster = Cluster(kubeconfig, context)
        pods = [pod for name in namespaces for pod in cluster.items(f"/api/v1/namespaces/{name}/pods", _PODS_WAIT_S)]
    except MeshtrialError as error:
        if kubeconfig or context:
            raise
        return {}, f"Replicas are 1, because no cluster was asked: {error}"
    counted = replicas_of(pods)
    found = {name: counted[name] for name in services if name in counted}
    missing = [name.name for name in services if name not in found and name.namespace]
    unfound = f"; 1 where none was found: {', '.join(missing)}" if missing else ""
    return found, f"Replicas are the running pods of {cluster.where()}{unfound}"
