"""``meshtrial clean``: remove what a crashed study left on a cluster, and nothing that is not ours."""

import argparse
from typing import TextIO


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("--context", default="", help="empty is the current one")
    command.add_argument("--kubeconfig", default="", help="empty is KUBECONFIG or the usual file")
    command.add_argument(
        "--cluster-file", default="", metavar="FILE", help="the studies' own: helm, context, meshes; other options win"
    )
    command.add_argument("--study", default=None, help="only what this study made")
    command.add_argument("--force", action="store_true", help="also what a running study owns")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; exit 1 when something of ours remains, of a running study too."""
    # The Kubernetes client takes a second to load, which other commands need not wait for.
    from meshtrial.testbed.kubernetes.cleanup import clean
    from meshtrial.testbed.kubernetes.options import KubernetesOptions

    said = {"context": arguments.context, "kubeconfig": arguments.kubeconfig, "cluster_file": arguments.cluster_file}
    options = KubernetesOptions.read({name: value for name, value in said.items() if value})
    done = clean(options, arguments.study, force=arguments.force)
    print("\n".join(done.lines), file=out)
    return 1 if done.remaining else 0
