"""Repeat tests and list those that ever failed, which finds tests that depend on the machine's speed.

``make repeat N=20 TESTS=tests/local BUSY=1``; BUSY is how many cores are kept busy beside them. Every round is a
separate pytest process. The exit code is 1 if anything ever failed.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from meshtrial.signals import interruptible


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Run this many programs that only use CPU."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def one_round(arguments: Sequence[str], results: Path) -> tuple[int, dict[str, str]]:
    """Return the exit code and the failed tests, each with its first line of explanation."""
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *arguments]
    with results.with_suffix(".log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    failed = {}
    for case in ElementTree.parse(results).iter("testcase") if results.exists() else ():
        for problem in (*case.iter("failure"), *case.iter("error")):
            name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
            failed[name] = (problem.get("message") or "").partition("\n")[0][:100]
    return code, failed


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="repeat", description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0, metavar="CORES", help="cores kept busy beside the tests")
    parser.add_argument("pytest", nargs="+", help="what pytest is given; options behind --")
    given = parser.parse_args(argv)
    counts: collections.Counter[str] = collections.Counter()
    why: dict[str, str] = {}
    done = bad = 0
    folder = Path(tempfile.mkdtemp(prefix="repeat-"))
    # When interrupted, it prints the results so far and ends its busy programs.
    with interruptible(), busy(given.busy), suppress(KeyboardInterrupt):
        for number in range(1, given.times + 1):
            started = time.monotonic()
            load = os.getloadavg()[0]
            code, failed = one_round(given.pytest, folder / f"{number}.xml")
            took = f"{time.monotonic() - started:.0f} s, load before {load:.1f}"
            print(f"round {number}: exit {code}, {len(failed)} failed, {took}", flush=True)
            done += 1
            bad += code != 0
            counts.update(failed.keys())
            why |= failed
    print(f"\n{done - bad} of {done} rounds passed; logs in {folder}")
    for name, number in counts.most_common():
        print(f"{number:4}  {name}\n      {why[name]}")
    return int(bad > 0 or done < given.times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
