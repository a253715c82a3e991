"""Synthetic fortio results with a known effect go through ingest to the verdict.

The whole spine runs (plan, runner, gates, records, tables, inference); only processes and their clock are
replaced by files that look like fortio's, so the truth behind every number is known.
"""

import io

import numpy as np
import pytest
from unit import pretended

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import make_plan
from meshtrial.inference import analyse
from meshtrial.records.schema import ComponentUsage
from meshtrial.records.store import StudyStore
from meshtrial.run.runner import execute
from meshtrial.testbed.base import MachineUse

EFFECTS = {"none": 1.0, "none-aa": 1.0, "sidecar": 1.2, "node-proxy": 1.0}
SERVICE_S = 2e-3
BLOCKS = 8
RUNS = BLOCKS * len(EFFECTS)


class _Deployment(pretended.Deployment):
    def __init__(self, fortio, effect, load, rng):
        self._fortio, self._load, self._rng = fortio, load, rng
        # Latency varies between deployments (1 %) and between requests (10 %); the effect multiplies both.
        self._typical_s = SERVICE_S * effect * np.exp(rng.normal(0, 0.01))
        self._clock_s = 0.0
        self.warm = False

    def snapshot(self):
        self._clock_s += 1.0
        usage = ComponentUsage("app", "app", self._clock_s, 0.1 * self._clock_s, 2**20, 0.0)
        return {"app": usage}

    def generate(self, calls, folder, timeout_s):
        load = self._load
        assert not self.warm  # nothing else is sent during the measurement
        draw = self._rng.lognormal(np.log(self._typical_s), 0.1, 1_000).tolist()
        duration = load.warmup_s if calls[0].name.startswith("warmup") else load.call_s
        interval_s = load.connections / load.rps

        def latency(_thread, i):
            # A cold start: if its slow requests were included, they would hide every effect.
            return draw.pop() * (2.0 if (i + 2) * interval_s < load.slice_warmup_s else 1.0)

        sent = self._fortio.run(load.rps, load.connections, duration, latency)
        made = self._fortio(folder)
        return tuple(made.output(sent, load.rps, load.connections, duration, name=call.name) for call in calls)

    def keep_warm(self, call):
        self.warm = call is not None
        if self.warm:
            self.kept_warm = call.arguments[:4]


class _Testbed(pretended.Testbed):
    def __init__(self, fortio, rng):
        self._fortio, self._rng = fortio, rng
        self.drawn, self.made = [], []

    def before_run(self):
        return {"idle_before": 1.0}

    def used_between(self):
        return MachineUse(busy=0.1, stolen=0.02)

    def make_ready(self, treatments, load, app, block):
        self.drawn.append(block.drawn.random())

    def deploy(self, treatment, load, app):
        made = _Deployment(self._fortio, EFFECTS[treatment.name], load, self._rng)
        self.made.append(made)
        return made


LOADS = {
    "one slice": FixedRate(400, 4, 1.0, warmup_s=0.25),
    "two interleaved slices": FixedRate(400, 4, 0.6, warmup_s=0.25, slices=2),
    "two warm slices": FixedRate(400, 4, 0.6, warmup_s=0.25, slices=2, slice_warmup_s=0.4, trickle_rps=5),
}


@pytest.fixture(scope="module", params=list(LOADS))
def rows(request, tmp_path_factory, virtual, make_study):
    load = LOADS[request.param]
    tmp_path = tmp_path_factory.mktemp("study")
    mode = "concurrent" if load.slices > 1 else "sequential"
    chosen = {"loads": (load,), "primary": ("latency_p50_s",), "deployment_mode": mode}
    study = make_study(treatments=tuple(EFFECTS), blocks=BLOCKS, **chosen)
    store = StudyStore.create(tmp_path, make_plan(study), {})
    told = io.StringIO()
    testbed = _Testbed(virtual, np.random.default_rng(20261121))
    execute(store, testbed, lambda line: print(line, file=told))
    # Once per block or per deployment; the value is the same for all deployments of a block.
    assert len(testbed.drawn) == (BLOCKS if load.slices > 1 else RUNS)
    assert len(set(testbed.drawn)) == BLOCKS
    kept = {getattr(made, "kept_warm", None) for made in testbed.made}
    assert kept == ({("-qps", "5", "-c", "1")} if load.trickle_rps else {None})
    assert "INVALID" not in told.getvalue()
    assert told.getvalue().startswith(f"[0/{RUNS}] ")
    assert told.getvalue().splitlines()[-1].startswith(f"[{RUNS}/{RUNS}] {RUNS} runs in ")
    data = analyse(store)
    assert [run.responses["machine_stolen"] for run in data.runs] == pytest.approx([0.02] * RUNS)
    # For any number of slices per deployment, n is the number of blocks.
    assert {row.n_blocks for row in data.verdicts} == {BLOCKS}
    return {row.treatment: row for row in data.verdicts if row.response == "latency_p50_s"}


def test_a_known_effect_arrives_at_the_verdict(rows):
    slower = rows["sidecar"]
    assert slower.verdict == "slower"
    assert slower.qualifier == "material"
    assert slower.ci_low < 1.2 < slower.ci_high
    # 20 % of 2 ms.
    assert slower.difference == pytest.approx(0.4e-3, abs=0.08e-3)
    # Eight blocks all on one side: p = 2 / 2^8, doubled by Holm over two contrasts.
    assert slower.p == pytest.approx(2 / 2**8)
    assert slower.p_adjusted == pytest.approx(4 / 2**8)


def test_where_there_is_no_effect_none_is_called(rows):
    assert rows["node-proxy"].verdict == "equivalent"
    assert rows["none-aa"].verdict == "equivalent"
    assert rows["none-aa"].twin
