"""Synthetic fortio results with a known effect go through ingest to the verdict.

The whole spine runs (plan, runner, gates, records, tables, inference); only processes and their clock are
replaced by files that look like fortio's, so the truth behind every number is known.
"""

from __future__ import annotations

import io

import numpy as np
import pytest

from meshtrial.design.plan import make_plan
from meshtrial.design.study import Load
from meshtrial.inference import analyse
from meshtrial.load.generators import Target
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.records.store import StudyStore
from meshtrial.run.runner import execute
from meshtrial.testbed.base import Facts, MachineUse

EFFECTS = {"none": 1.0, "none-aa": 1.0, "sidecar": 1.2, "node-proxy": 1.0}
SERVICE_S = 2e-3


class _Deployment:
    def __init__(self, fortio, effect, load, rng):
        self.target, self.versions = Target("http://127.0.0.1:8080/echo"), {"fortio": "1.68.1"}
        self._fortio, self._load, self._rng = fortio, load, rng
        # What varies between deployments (2 %) and between requests (30 %); the effect multiplies both.
        self._typical_s = SERVICE_S * effect * np.exp(rng.normal(0, 0.02))
        self._clock_s = 0.0

    def prove(self, phase, requests):
        return (Proof("made up", phase, True, "", ""),)

    def snapshot(self):
        self._clock_s += 1.0
        usage = ComponentUsage("app", "app", self._clock_s, 0.1 * self._clock_s, 2**20, 0.0)
        return {"app": usage}

    def sample(self):
        return {}

    def generate(self, calls, folder, timeout_s):
        load = self._load
        draw = self._rng.lognormal(np.log(self._typical_s), 0.3, 100_000).tolist()
        duration = load.warmup_s if calls[0].name.startswith("warmup") else load.duration_s
        sent = self._fortio.run(load.rps, load.connections, duration, lambda _thread, _i: draw.pop())
        made = self._fortio(folder)
        return tuple(made.output(sent, load.rps, load.connections, duration, name=call.name) for call in calls)

    def facts(self):
        return Facts()

    def collect_logs(self, folder):
        pass

    def close(self):
        pass


class _Testbed:
    name = "made up"

    def __init__(self, fortio, rng):
        self._fortio, self._rng = fortio, rng

    def before_run(self):
        return {"idle_before": 1.0}

    def used_between(self):
        return MachineUse(busy=0.1, stolen=0.02)

    def generator_cpus(self):
        return 2.0

    def deploy(self, treatment, load, app):
        return _Deployment(self._fortio, EFFECTS[treatment.name], load, self._rng)


@pytest.fixture(scope="module", params=[1, 2], ids=["one slice", "two interleaved slices"])
def rows(request, tmp_path_factory, virtual, make_study):
    load = Load(400, 4, 1.0 if request.param == 1 else 0.6, warmup_s=0.25, slices=request.param)
    tmp_path = tmp_path_factory.mktemp("study")
    study = make_study(treatments=tuple(EFFECTS), blocks=12, loads=(load,), primary=("latency_p50_s",))
    store = StudyStore.create(tmp_path, make_plan(study), {})
    told = io.StringIO()
    execute(store, _Testbed(virtual, np.random.default_rng(20261121)), lambda line: print(line, file=told))
    assert "INVALID" not in told.getvalue()
    assert told.getvalue().startswith("[0/48] ")
    assert told.getvalue().splitlines()[-1].startswith("[48/48] 48 runs in ")
    data = analyse(store)
    assert [run.responses["machine_stolen"] for run in data.runs] == pytest.approx([0.02] * 48)
    # However many slices a deployment was measured in: n is the number of blocks.
    assert {row.n_blocks for row in data.verdicts} == {12}
    return {row.treatment: row for row in data.verdicts if row.response == "latency_p50_s"}


def test_a_known_effect_arrives_at_the_verdict(rows):
    slower = rows["sidecar"]
    assert slower.verdict == "slower"
    assert slower.qualifier == "material"
    assert slower.ci_low < 1.2 < slower.ci_high
    # 20 % of 2 ms.
    assert slower.difference == pytest.approx(0.4e-3, abs=0.08e-3)
    # Twelve blocks all on one side: p = 2 / 2^12, doubled by Holm over two contrasts.
    assert slower.p == pytest.approx(2 / 2**12)
    assert slower.p_adjusted == pytest.approx(4 / 2**12)


def test_where_there_is_no_effect_none_is_called(rows):
    assert rows["node-proxy"].verdict == "equivalent"
    assert rows["none-aa"].verdict == "equivalent"
    assert rows["none-aa"].twin
