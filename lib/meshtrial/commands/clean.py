"""``meshtrial clean``: remove what a crashed study left on a cluster, and nothing else."""

import argparse
from typing import TextIO


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("--context", default="", help="context of the kubeconfig file (default: the current one)")
    option("--kubeconfig", default="", metavar="FILE", help="kubeconfig file (default: KUBECONFIG or ~/.kube/config)")
    cluster_file = "cluster file of the studies (helm, context, meshes); other options override it"
    option("--cluster-file", default="", metavar="FILE", help=cluster_file)
    option("--study", help="remove only what this study created")
    option("--force", action="store_true", help="also remove what a running study owns")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; return 1 if something remains, for example of a running study."""
    # Importing the Kubernetes client takes a second.
    from meshtrial.testbed.kubernetes.cleanup import clean
    from meshtrial.testbed.kubernetes.options import KubernetesOptions

    names = ("context", "kubeconfig", "cluster_file")
    options = KubernetesOptions.read({name: value for name in names if (value := getattr(arguments, name))})
    result = clean(options, arguments.study, force=arguments.force)
    print("\n".join(result.lines), file=out)
    return 1 if result.remaining else 0
