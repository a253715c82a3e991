"""How long reading and checking a run of 100 000 requests takes, against the run itself. Run by hand:

.venv/bin/python tests/benchmarks/ingest.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from meshtrial.design.study import Load, Treatment
from meshtrial.load import fortio
from meshtrial.load.ingest import ingest
from meshtrial.testbed.local.testbed import LocalTestbed

LOAD = Load(10_000, 20, 10)
REPEATS = 5


def main() -> None:
    """Print one line."""
    deployment = LocalTestbed().deploy(Treatment.parse("none"), LOAD, "echo")
    with tempfile.TemporaryDirectory(prefix="meshtrial-") as folder:
        try:
            outputs = deployment.generate(fortio.calls(LOAD, "measure"), Path(folder), 60)
        finally:
            deployment.close()
        taken = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            found = ingest(outputs, LOAD, 100)
            taken.append(time.perf_counter() - began)
    each = ", ".join(f"{seconds:.2f}" for seconds in taken)
    print(f"{found.requests.height} requests of {LOAD.duration_s:g} s ingested in {each} s")


if __name__ == "__main__":
    main()
