"""How large the report of a 600-run study is and how long it takes to open it.

The study is simulated (4 treatments x 150 blocks, 1500 requests a run); its page is made by the cells of the notebook.
"""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, main
from browser import opening
from browser.simulated import page_of
from unit.report import synth

BLOCKS, VISITS = 150, 5
LIMIT_S, LIMIT_BYTES = 2.0, 5_000_000


def rows() -> Iterator[Row]:
    """Both against their limits."""
    with tempfile.TemporaryDirectory() as folder:
        data = synth.study_data(Path(folder), synth.Shape(blocks=BLOCKS, requests=4500))
        page = page_of(data, Path(folder) / "report.html")
        size, what = page.stat().st_size, f"report of {len(data.runs)} runs"
        yield Row(f"{what}: size", f"{size / 1e6:.2f} MB", f"{LIMIT_BYTES / 1e6:g} MB, the limit", size / LIMIT_BYTES)
        with opening.browser() as chromium:
            for setting in (opening.SETTINGS["1280"], opening.SETTINGS["phone"]):
                middle = statistics.median(opening_s(chromium, page, setting) for _ in range(VISITS))
                opened = f"{what}: opened at {setting.name}, median of {VISITS}"
                yield Row(opened, f"{middle:.2f} s", f"{LIMIT_S:g} s, the limit", middle / LIMIT_S)


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
    main(rows)
