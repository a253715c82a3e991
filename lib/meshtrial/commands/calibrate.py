"""``meshtrial calibrate``: the inference on known truth, as printed in the README."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from meshtrial.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

FULL, QUICK = 4000, 1000


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser("calibrate")
    command.add_argument("--full", action="store_true", help=f"{FULL} studies a cell instead of {QUICK}")
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--from", dest="source", type=Path, metavar="DIR", help="also under a recorded study's noise")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; exit 1 when a check does not hold."""
    # scipy takes a moment to load, which other commands need not wait for.
    from meshtrial import stats

    began = time.monotonic()
    recorded = None if arguments.source is None else recorded_logs(arguments.source)
    rows = stats.run_all(arguments.seed, FULL if arguments.full else QUICK, recorded=recorded)
    width = max(len(row.cell) for row in rows)
    check = ""
    for row in rows:
        if row.check != check:
            check = row.check
            print(f"\n{check}", file=out)
        verdict = "holds" if row.passed else "FAILS"
        print(f"  {row.cell:<{width}}  {row.observed:.4f}  {row.rule} {row.nominal:g}  {verdict}", file=out)
    failed = sum(not row.passed for row in rows)
    spent = time.monotonic() - began
    print(f"\n{len(rows)} checks, {rows[0].repetitions} studies a cell, {failed} do not hold ({spent:.0f} s)", file=out)
    return 1 if failed else 0


def recorded_logs(folder: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Logs of p50 of a recorded study's baseline and twin, a row a block: the machine's own noise."""
    import numpy as np

    from meshtrial.inference.values import block_values
    from meshtrial.records.store import StudyStore
    from meshtrial.records.tables import include, runs_table

    store = StudyStore.open(folder.resolve())
    study, records = store.plan.study, store.records()
    if study.twin is None:
        raise UsageError(f"{folder}: the study has no A/A twin, so its noise cannot be told from its effects")
    load = study.loads[0].label
    blocks = include(store.plan, records, load).blocks
    arms = [study.baseline.name, study.twin.name]
    values = block_values(runs_table(store.plan, records), load, "latency_p50_s", arms, blocks)
    if len(blocks) < 4:
        raise UsageError(f"{folder}: {len(blocks)} complete blocks; at least 4 are needed to draw noise from")
    return np.log(np.column_stack([values[arm] for arm in arms]))
