"""``meshtrial fetch``: the records of a study that runs in its cluster, as far as it is, onto this machine."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.commands.status import line
from meshtrial.inference import analyse
from meshtrial.records.store import StudyStore
from meshtrial.signals import interruptible


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("--context", default="", help="empty is the current one")
    command.add_argument("--kubeconfig", default="", help="empty is KUBECONFIG or the usual file")
    command.add_argument("--namespace", default="meshtrial", help="where the Job is (meshtrial)")
    command.add_argument("--job", default="meshtrial-study", help="what it is called (meshtrial-study)")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where studies go; default: data/studies")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; what is here already is not copied again."""
    # The Kubernetes client takes a second to load, which other commands need not wait for.
    from meshtrial.testbed.kubernetes.client import Cluster
    from meshtrial.testbed.kubernetes.fetching import fetch, volume_of

    cluster = Cluster(arguments.kubeconfig, arguments.context)
    root = (arguments.out or paths.studies_root()).resolve()
    with interruptible(), volume_of(cluster, arguments.namespace, arguments.job) as volume:
        fetched = fetch(volume, root)
    if not fetched:
        print(f"Job {arguments.job} has not begun a study yet", file=out)
    for one in fetched:
        if one.runs:
            analyse(StudyStore.open(one.path))
        print(f"{line(one.path)}, {one.new} of them new here", file=out)
    return 0
