"""``meshtrial status``: list recorded studies and their progress."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError
from meshtrial.inference import finished_blocks
from meshtrial.records.listing import recorded_in
from meshtrial.records.parts import part_of
from meshtrial.records.store import StudyStore
from meshtrial.run import estimates
from meshtrial.run.trial import complete, resume_command


def run(_: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    root = paths.studies_root()
    # A folder with runs but without a plan is listed, too, as unreadable.
    folders = sorted({*recorded_in(root), *(runs.parent for runs in root.glob("*/*/runs"))})
    if not folders:
        print(f"no recorded study in {paths.display_path(root)}; `make study` records one", file=out)
    for folder in folders:
        print(line(folder), file=out)
    return 0


def line(path: Path) -> str:
    """Return the progress of a study in one line."""
    try:
        store = StudyStore.open(path)
        damaged: dict[Path, str] = {}
        records = store.records(damaged)
        done = {record.run_id for record in records}
        failed = sum(1 for record in records if not record.valid)
        part = part_of(store.plan, store.environment)
        blocks = f"{len(finished_blocks(store.plan, records))} of {len(store.blocks)} blocks"
        state = "whole" if complete(store, records) else f"provisional, {blocks}"
        if store.running:
            overhead_s = estimates.expected_overhead_s(store.plan, records, paths.studies_root())
            waiting = [run for run in store.runs_here() if run.run_id not in done]
            remaining_s = estimates.remaining_s(store.plan, waiting, overhead_s)
            state = f"running, {blocks}, {estimates.remaining_text(store.plan, remaining_s)}"
        state += f", part {part}" if part else ""
        if damaged:
            state += f", {len(damaged)} damaged ({next(iter(damaged)).name}); repeat them: {resume_command(store)}"
        return (
            f"{paths.display_path(path)}  {state}  {len(done)}/{len(store.runs_here())} runs, {failed} attempts failed"
        )
    except MeshtrialError as error:
        return f"{paths.display_path(path)}  unreadable: {error}"
