"""``meshtrial calibrate``: apply the inference to simulated studies whose truth is known."""

import argparse
import time
from pathlib import Path
from typing import TextIO

from meshtrial import stats
from meshtrial.inference.instrument import recorded_noise_logs

FULL, QUICK = 4000, 1000


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("--full", action="store_true", help=f"simulate {FULL} studies per cell instead of {QUICK}")
    option("--seed", type=int, default=1, help="seed of the simulation (default 1)")
    option("--from", dest="source", type=Path, metavar="DIR", help="also simulate the noise of a recorded study")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; return 1 if a check does not hold."""
    began = time.monotonic()
    recorded = None if arguments.source is None else recorded_noise_logs(arguments.source)
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
    count = f"{len(rows)} checks, up to {rows[0].repetitions} studies per cell"
    print(f"\n{count}, {failed} do not hold ({time.monotonic() - began:.0f} s)", file=out)
    return 1 if failed else 0
