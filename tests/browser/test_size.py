"""A report of 600 runs is small enough to send and open; docs/benchmarks/report.py measures how fast it opens."""

from browser.simulated import page_of
from unit.report import synth

LARGEST_BYTES = 5_000_000


def test_the_page_of_600_runs_is_under_5_mb(tmp_path):
    data = synth.study_data(tmp_path, synth.Shape(blocks=150, requests=4500))
    assert len(data.runs) == 600
    assert page_of(data, tmp_path / "report.html").stat().st_size < LARGEST_BYTES
