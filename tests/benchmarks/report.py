"""How large the report of a 600-run study is and how long it takes to open it. Run by hand:

PYTHONPATH=tests .venv/bin/python -m benchmarks.report

The study is simulated (4 treatments x 150 blocks, 1500 requests a run); its page is made by the cells of the notebook.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from browser import opening
from browser.simulated import page_of
from unit.report import synth

BLOCKS, VISITS = 150, 5
LIMIT_S, LIMIT_BYTES = 2.0, 5_000_000


def main() -> bool:
    """Say both, and whether they are within the limits."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        data = synth.study_data(Path(folder), synth.Shape(blocks=BLOCKS, requests=4500))
        simulated = time.perf_counter()
        page = page_of(data, Path(folder) / "report.html")
        print(f"{len(data.runs)} runs; page made in {time.perf_counter() - simulated:.1f} s", end=" ")
        print(f"(simulated in {simulated - began:.1f} s)")
        size = page.stat().st_size
        print(f"size: {size / 1e6:.2f} MB; the limit is {LIMIT_BYTES / 1e6:g} MB")
        slowest = 0.0
        with opening.browser() as chromium:
            for setting in (opening.SETTINGS["1280"], opening.SETTINGS["phone"]):
                taken = [opening_s(chromium, page, setting) for _ in range(VISITS)]
                middle = statistics.median(taken)
                slowest = max(slowest, middle)
                print(f"opens at {setting.name}: {middle:.2f} s (median of {VISITS}, {max(taken):.2f} s at most)")
        print(f"the limit is {LIMIT_S:g} s")
    return size <= LIMIT_BYTES and slowest <= LIMIT_S


def opening_s(chromium: opening.Browser, page: Path, setting: opening.Setting) -> float:
    """Seconds from the start of navigation until the page is loaded and drawn, by the browser's own clock."""
    with opening.opened(chromium, setting) as view:
        view.goto(page.as_uri(), wait_until="load")
        return 1e-3 * float(
            view.evaluate(
                "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"
            )
        )


if __name__ == "__main__":
    raise SystemExit(not main())
