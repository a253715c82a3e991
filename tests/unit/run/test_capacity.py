"""The search on a simulated deployment with known capacity."""

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import polars as pl
import pytest
from refused import as_reviewed, refused

from meshtrial.design.load import CapacitySearch, ClosedLoop, FixedRate, Load
from meshtrial.design.responses import applies, response
from meshtrial.design.study import Gates, Study
from meshtrial.errors import MeshtrialError
from meshtrial.records.schema import GateResult
from meshtrial.run import capacity, stage

LOAD = CapacitySearch(10, 1.0, 0.5, generators=2)


@dataclass
class Pretended:
    """A deployment that keeps every rate up to ``limit``; from ``generator_limit`` on the generator fails."""

    limit: float
    generator_limit: float = math.inf
    flatter: float = 1.0
    timers: float = math.inf  # rate on each connection beyond which the generator's timers are too coarse
    late: float = 0.0  # share of the sends that are late behind answers
    busy: bool = False  # whether every connection waits for an answer all the time
    asked: list[tuple[float, float]] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)

    def measure(self, deployment, testbed, load: Load, gates: Gates, folder, resolution_s) -> stage.Stage:
        assert isinstance(load, FixedRate | ClosedLoop)
        self.asked.append((load.asked_rps, load.duration_s))
        self.connections.add(load.connections)
        limit = self.limit * (self.flatter if load.duration_s == LOAD.duration_s else 1.0)
        in_time = load.asked_rps / load.connections < self.timers
        if not isinstance(load, ClosedLoop) and not in_time:
            limit = min(limit, self.timers * load.connections)
        achieved = limit if isinstance(load, ClosedLoop) else min(load.asked_rps, limit)
        held = isinstance(load, ClosedLoop) or (load.asked_rps * (1 - gates.rate_tolerance) <= limit and in_time)
        carried = load.asked_rps < self.generator_limit
        results = (
            GateResult("rate", 0.0, gates.rate_tolerance, held, "" if held else "not held"),
            GateResult("late", self.late, gates.late_ratio, self.late <= gates.late_ratio, ""),
            GateResult("generator late", 0.0 if in_time else 0.5, gates.late_ratio, in_time, ""),
            GateResult("generator CPU", 0.3 if carried else 0.9, gates.generator_cpu, carried, ""),
        )
        # Little's law: with so much latency a connection is busy all the time.
        latency_s = load.connections / achieved if self.busy else 1e-5
        requests = pl.DataFrame({"ok": [True] * 1000, "latency_s": [latency_s] * 1000})
        responses = {"achieved_rps": achieved, "latency_p50_s": 0.001, "path_cpu_s_per_request": 1e-5}
        if not isinstance(load, ClosedLoop):
            responses["achieved_ratio"] = achieved / load.asked_rps
        measurement = SimpleNamespace(requests=requests, generators=(SimpleNamespace(requests=1000),))
        return stage.Stage(measurement, (), results, responses, (), sent=1000)  # type: ignore[arg-type]


class Queue(Pretended):
    """Its latency grows with its rate: 1 ms / (1 - rate/limit), from the schedule; the raw one stays at 1 ms."""

    def measure(self, deployment, testbed, load: Load, gates: Gates, folder, resolution_s) -> stage.Stage:
        measured = super().measure(deployment, testbed, load, gates, folder, resolution_s)
        waiting = 0.001 / max(1e-3, 1 - load.asked_rps / self.limit)
        count = max(1, round(load.asked_rps * load.duration_s))
        measured.measurement.requests = pl.DataFrame(  # type: ignore[misc]
            {"ok": [True] * count, "latency_s": [0.001] * count, "corrected_latency_s": [waiting] * count}
        )
        return measured


@pytest.fixture
def found(monkeypatch, tmp_path):
    def search(pretended: Pretended, load: Load = LOAD, *drawn: float) -> capacity.Capacity:
        monkeypatch.setattr(stage, "measure", pretended.measure)
        monkeypatch.setattr(stage, "warm_up", lambda *_: (500, 1e-5))
        return capacity.Search(None, None, load, Gates(), tmp_path, *drawn).run()  # type: ignore[arg-type]

    return search


@pytest.mark.parametrize("limit", [300.0, 4321.0, 80000.0])
def test_the_capacity_is_found_within_the_resolution(limit, found):
    result = found(Pretended(limit))
    assert limit / (1 + capacity.RESOLUTION) / 1.03 < result.responses["capacity_rps"] <= limit / 0.98
    assert result.responses["closed_loop_rps"] == limit
    assert "path_cpu_s_per_request" in result.responses
    assert not [name for name in result.responses if name.startswith("latency_")]
    assert [s.stage for s in result.steps].count("confirm") == 1
    # 500 in the warm-up, 1000 in every stage: the counters of the proofs must match these.
    assert result.sent == 500 + 1000 * len(result.steps)


def test_what_only_a_short_step_kept_is_not_confirmed(found):
    result = found(Pretended(1000.0, flatter=1.2))
    assert not next(s.held for s in result.steps if s.stage == "confirm")
    assert result.confirmed.failed == ()
    assert result.responses["capacity_rps"] <= 1000 / 0.98
    assert result.to_dict()["high_rps"] > result.to_dict()["low_rps"]


@pytest.mark.parametrize(
    ("pretended", "most_rps", "failed"),
    [
        (Pretended(1000.0, generator_limit=800.0), 800, "generator CPU"),
        (Pretended(30000.0, timers=100.0), 8000, "generator late"),
    ],
)
def test_a_generator_at_its_limit_gives_a_lower_bound(pretended, most_rps, failed, found):
    result = found(pretended)
    # The generator's limit is not a capacity, and nothing is compared with it.
    assert "capacity_rps" not in result.responses
    assert result.responses["capacity_at_least_rps"] < most_rps
    assert failed in result.to_dict()["limited_by"]
    as_reviewed(result.notes[0])


@pytest.mark.parametrize(
    ("pretended", "capacity_rps", "most_connections"),
    [
        # The generator's timers are not a capacity: more connections are used, and higher rates are tried too.
        (Pretended(30000.0, timers=870.0), pytest.approx(30000.0, rel=0.15), 80),
        # Late sends on busy connections are not the generator's fault.
        (Pretended(30000.0, timers=1000.0, late=0.8, busy=True), pytest.approx(1000 * 10, rel=0.15), 10),
        # Every second send is late after a response: fortio catches up, and a search gives no latencies.
        (Pretended(30000.0, late=0.5), pytest.approx(30000.0, rel=0.12), 10),
    ],
)
def test_what_is_late_limits_no_rate_that_is_kept(pretended, capacity_rps, most_connections, found):
    result = found(pretended)
    assert result.responses["capacity_rps"] == capacity_rps
    assert max(step.connections for step in result.steps) == most_connections == max(pretended.connections)
    assert result.to_dict()["limited_by"] == ["rate"]
    assert not {"late", "generator late"} & {gate.name for gate in result.confirmed.gates}


def test_connections_that_carry_no_more_are_given_back(found):
    class Stubborn(Pretended):
        def measure(self, deployment, testbed, load, gates, folder, resolution_s):
            self.timers = 1e4 / load.connections  # n requests per second, over any number of connections
            return super().measure(deployment, testbed, load, gates, folder, resolution_s)

    pretended = Stubborn(30000.0)
    result = found(pretended)
    assert pretended.connections == {10, 20}
    assert result.load.connections == 10
    assert "capacity_rps" not in result.responses


def test_a_capacity_far_below_the_closed_loop_is_explained(found):
    class Stalling(Pretended):
        def measure(self, deployment, testbed, load, gates, folder, resolution_s):
            measured = super().measure(deployment, testbed, load, gates, folder, resolution_s)
            if isinstance(load, ClosedLoop):
                measured.responses["achieved_rps"] = 4 * self.limit
            return measured

    result = found(Stalling(1000.0))
    as_reviewed(result.notes[0])


def test_no_rate_kept_at_all_is_a_failure_that_says_so(found):
    with refused(MeshtrialError):
        found(Pretended(1000.0, generator_limit=0.0))


def test_the_files_of_a_stage_that_was_not_confirmed_are_gone(tmp_path):
    paths = [tmp_path / name for name in ("a.json", "a.log", "a.txt")]
    for path in paths:
        path.touch()
    output = SimpleNamespace(json_path=paths[0], access_log_path=paths[1])
    capacity.forget(SimpleNamespace(outputs=[output]))  # type: ignore[arg-type]
    assert not any(path.exists() for path in paths)


def test_which_responses_belong_to_which_load(make_study):
    plain = FixedRate(100, 4, 2)
    assert applies("capacity_rps", LOAD)
    assert not applies("capacity_rps", plain)
    assert applies("latency_p50_s", plain)
    assert not applies("latency_p50_s", LOAD)
    assert applies("path_cpu_s_per_request", plain)
    # Costs at each treatment's own rate are recorded but not compared.
    assert not applies("path_cpu_s_per_request", LOAD)
    assert response("capacity_rps").kind == "level"
    study = make_study(loads=(plain, LOAD))
    assert Study.from_dict(study.to_dict()) == study


def test_under_an_objective_the_capacity_is_the_highest_rate_that_keeps_it(found):
    plain = found(Queue(2000.0))
    # 1 ms / (1 - x) < 4 ms up to three quarters of the limit.
    kept = found(Queue(2000.0), replace(LOAD, objective="p90<4ms"))
    assert kept.responses["capacity_rps"] == pytest.approx(1500, rel=0.05)
    assert kept.responses["capacity_rps"] <= 1500
    assert plain.responses["capacity_rps"] > 1.15 * kept.responses["capacity_rps"]
    assert "objective" in kept.to_dict()["limited_by"]
    assert kept.confirmed.gates[-1].name == "objective"


def test_a_rate_is_confirmed_by_the_upper_limit_of_its_percentile(found):
    """Just under a tenth of the requests are late: their p90 is below the objective, its upper limit is not."""

    class Even(Queue):
        def measure(self, deployment, testbed, load, gates, folder, resolution_s):
            measured = super().measure(deployment, testbed, load, gates, folder, resolution_s)
            rows = measured.measurement.requests.with_row_index()
            late = pl.when(pl.col("index") < len(rows) // 10 - 2).then(0.1).otherwise(0.001)
            measured.measurement.requests = rows.with_columns(late.alias("corrected_latency_s"))
            return measured

    result = found(Even(2000.0), replace(LOAD, objective="p90<4ms"))
    searched = [step for step in result.steps if step.stage == "search"]
    confirmed = [step for step in result.steps if step.stage == "confirm"]
    assert any(step.held for step in searched)
    assert not any(step.held for step in confirmed)
    assert "is at most (95%) 100 ms" in result.confirmed.gates[-1].message


def test_the_grid_lies_where_it_was_drawn_and_the_record_says_where(found):
    asked = {}
    for dither in (0.0, 0.3, 0.999):
        pretended = Pretended(1000.0)
        result = found(pretended, LOAD, dither)
        assert result.to_dict()["dither"] == dither
        assert 1000 / (1 + capacity.RESOLUTION) < result.load.asked_rps <= 1000 / 0.98
        asked[dither] = pretended.asked[1][0]
    first = capacity.START * 1000
    assert asked == {d: pytest.approx(first * capacity.FACTOR**d, rel=0.005) for d in asked}


def test_a_step_is_as_long_as_the_percentile_needs(found):
    pretended = Queue(300.0)
    found(pretended, replace(LOAD, objective="p99<4ms"))
    # Ten requests beyond p99 need 1000: five seconds at 200 rps, although a step lasts one.
    assert all(rps * length >= 999 for rps, length in pretended.asked if rps)
    with refused(MeshtrialError):
        found(Queue(150.0), replace(LOAD, objective="p99.9<4ms"))


def test_an_objective_that_no_rate_keeps_is_said(found):
    with refused(MeshtrialError, names=["objective"]):
        found(Queue(2000.0), replace(LOAD, objective="p90<0.5ms"))
