"""Two treatments of equal capacity in the real search, against a server whose limit varies."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from meshtrial.design.load import CapacitySearch, FixedRate, Load
from meshtrial.design.study import Gates
from meshtrial.records.schema import GateResult
from meshtrial.run import capacity, stage
from meshtrial.stats.ranktests import signed_rank_p

LOAD = CapacitySearch(10, 1.0, 0.5, generators=2)
STUDIES, BLOCKS, ALPHA = 40, 10, 0.05
MEASUREMENT = SimpleNamespace(
    requests=pl.DataFrame({"ok": [True], "latency_s": [1e-5]}), generators=(SimpleNamespace(requests=1),)
)
# Two data planes of equal capacity can differ in a closed loop, which has no schedule.
CLOSED_LOOPS = (1.20, 1.27)


class Server:
    """A server that keeps every rate up to a limit, which varies by step (sd 1 %)."""

    def __init__(self, rng: np.random.Generator, limit: float, closed: float) -> None:
        self.rng, self.limit, self.closed = rng, limit, closed

    def measure(self, _deployment, _testbed, load: Load, gates: Gates, *_) -> stage.Stage:
        limit = self.limit * math.exp(self.rng.normal(0, 0.01))
        if isinstance(load, FixedRate):
            achieved = min(load.rps, limit)
            held = achieved >= (1 - gates.rate_tolerance) * load.rps
            responses = {"achieved_rps": achieved, "achieved_ratio": achieved / load.rps}
        else:
            achieved, held = limit * self.closed, True
            responses = {"achieved_rps": achieved}
        gate = GateResult("rate", 0.0, gates.rate_tolerance, held, "")
        return stage.Stage(MEASUREMENT, (), (gate,), responses, ())  # type: ignore[arg-type]


def share_called(monkeypatch: pytest.MonkeyPatch, folder: Path, studies: int, *, drawn: bool) -> float:
    """Return the share of studies of equal capacity that call a difference."""
    rng = np.random.default_rng(7)
    called = 0
    for _ in range(studies):
        limit, logs = rng.uniform(1000, 9000), np.empty((2, BLOCKS))
        for treatment, closed in enumerate(CLOSED_LOOPS):
            for block in range(BLOCKS):
                server = Server(rng, limit * math.exp(rng.normal(0, 0.01)), closed)
                monkeypatch.setattr(stage, "measure", server.measure)
                dither = rng.random() if drawn else 0.0
                found = capacity.Search(None, None, LOAD, Gates(), folder, dither).run()  # type: ignore[arg-type]
                logs[treatment, block] = math.log(found.load.rps)
        called += signed_rank_p(logs[1] - logs[0], "two-sided", 1e-12) <= ALPHA
    return called / studies


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "warm_up", lambda *_: (0, 1e-5))


def test_two_treatments_of_one_capacity_are_called_no_more_often_than_chance_does(monkeypatch, tmp_path):
    allowed = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / STUDIES)
    assert share_called(monkeypatch, tmp_path, STUDIES, drawn=True) <= allowed


def test_a_coarse_grid_that_hangs_on_the_closed_loop_calls_them_nearly_always(monkeypatch, tmp_path):
    monkeypatch.setattr(capacity, "RESOLUTION", 0.1)
    assert share_called(monkeypatch, tmp_path, 10, drawn=False) > 0.5
