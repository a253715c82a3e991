"""``meshtrial clean``: remove what a crashed study left on a cluster, and nothing that is not ours."""

from __future__ import annotations

import argparse
from typing import Any, TextIO


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser("clean")
    command.add_argument("--context", default="", help="empty is the current one")
    command.add_argument("--kubeconfig", default="", help="empty is KUBECONFIG or the usual file")
    command.add_argument("--study", default=None, help="only what this study made")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; exit 1 when something of ours remains."""
    # The Kubernetes client takes a second to load, which other commands need not wait for.
    from meshtrial.testbed.kubernetes.cleanup import clean

    done = clean(arguments.context, arguments.study, kubeconfig=arguments.kubeconfig)
    print("\n".join(done.lines), file=out)
    return 1 if done.remaining else 0
