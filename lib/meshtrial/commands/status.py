"""``meshtrial status``: the recorded studies, how far each is, and what it said."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError
from meshtrial.inference.sequential import finished_repetitions
from meshtrial.records.store import StudyStore
from meshtrial.run import duration
from meshtrial.run.trial import complete


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser("status")
    command.set_defaults(run=run)


def run(_: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    root = paths.studies_root()
    found = sorted(root.glob("*/*/plan.json")) if root.is_dir() else []
    if not found:
        print(f"no study is recorded under {paths.shown(root)}; `make study` records one", file=out)
    for path in found:
        print(_line(path.parent), file=out)
    return 0


def _line(path: Path) -> str:
    try:
        store = StudyStore.open(path)
        records = store.records()
        done = {record.run_id for record in records}
        invalid = sum(1 for record in records if not record.valid)
        blocks = f"{finished_repetitions(store.plan, records)} of {store.plan.study.blocks} blocks"
        state = "whole" if complete(store) else f"provisional, {blocks}"
        if store.running:
            besides_s = duration.expected_besides_s(store.plan, records, paths.studies_root())
            state = f"running, {blocks}, {duration.said(store.plan, duration.left_s(store.plan, done, besides_s))}"
        return f"{paths.shown(path)}  {state}  {len(done)}/{len(store.plan.runs)} runs, {invalid} attempts invalid"
    except MeshtrialError as error:
        return f"{paths.shown(path)}  unreadable: {error}"
