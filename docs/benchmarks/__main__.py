"""Run all benchmarks one after the other, each in its own process, and print one table: ``make bench``.

    PYTHONPATH=docs:lib:tests python -m benchmarks [--write FILE] [NAME...]

``--write`` puts the table into FILE after its last heading, with machine and date. A benchmark that cannot run on this
machine is a row with the reason. Nothing else should run at the same time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.table import HEADING, Row, markdown

# In this order, the shortest first.
ALL = ("many_runs", "report", "access_log", "sidecar_start", "block")


def rows(name: str) -> list[Row]:
    """Those of one benchmark; one that says why where it ended otherwise."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", f"benchmarks.{name}", "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    found = [Row(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    return found if done.returncode == 0 else [*found, Row(name, f"ended with code {done.returncode}", "")]


def machine() -> str:
    """What it is, without whose it is."""
    model = next((line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    today = datetime.datetime.now(datetime.UTC).date()
    return f"{os.cpu_count()} cores ({model or platform.machine()}), {memory:.0f} GiB, Linux; {today}."


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    """Measure and print; write where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="all benchmarks as one table")
    parser.add_argument("--write", type=Path, help="a Markdown file that ends in a table")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; all without any")
    asked = parser.parse_args()
    if strange := set(asked.names) - set(ALL):
        parser.error(f"{', '.join(sorted(strange))}: must be of {', '.join(ALL)}")
    lines = [markdown(HEADING), markdown("---" for _ in HEADING)]
    print(machine(), *lines, sep="\n", flush=True)
    for name in asked.names or ALL:
        for row in rows(name):
            lines.append(markdown(row.cells()))
            print(lines[-1], flush=True)
    if asked.write:
        kept, heading, _ = asked.write.read_text().rpartition("\n## ")
        title = heading + asked.write.read_text().rpartition("\n## ")[2].partition("\n")[0]
        asked.write.write_text("\n".join([kept + title, "", machine(), "", *lines, ""]))


if __name__ == "__main__":
    main()
