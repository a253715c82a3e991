"""``meshtrial fetch``: copy the records of a study that runs in its cluster to this machine."""

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
    option = command.add_argument
    option("--context", default="", help="context of the kubeconfig file (default: the current one)")
    option("--kubeconfig", default="", metavar="FILE", help="kubeconfig file (default: KUBECONFIG or ~/.kube/config)")
    option("--namespace", default="meshtrial", help="its namespace (default meshtrial)")
    option("--job", default="meshtrial-study", help="name of the Job or CronJob (default meshtrial-study)")
    option("--out", type=Path, metavar="FOLDER", help="folder to write studies to (default data/studies)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; runs that were copied before are not copied again."""
    # Importing the Kubernetes client takes a second.
    from meshtrial.testbed.kubernetes.client import Cluster
    from meshtrial.testbed.kubernetes.fetching import fetch, volume_of

    cluster = Cluster(arguments.kubeconfig, arguments.context)
    root = (arguments.out or paths.studies_root()).resolve()
    with interruptible(), volume_of(cluster, arguments.namespace, arguments.job) as volume:
        fetched = fetch(volume, root)
    if not fetched:
        print(f"{arguments.job} has not started a study yet; try again later", file=out)
    for study in fetched:
        if study.runs:
            analyse(StudyStore.open(study.path))
        print(f"{line(study.path)}, {study.new} new", file=out)
    return 0
