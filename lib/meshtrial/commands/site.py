"""``meshtrial site``: ``papermill_runs/index.html`` again, over all runs."""

from __future__ import annotations

import argparse
from typing import Any, TextIO

from meshtrial import paths


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser("site")
    command.set_defaults(run=run)


def run(_: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.report import site

    print(paths.shown(site.write_index(paths.reports_root(), paths.studies_root())), file=out)
    return 0
