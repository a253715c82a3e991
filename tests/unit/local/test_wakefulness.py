"""The state of this machine before a run: asked of the machine itself, and never how fast it is."""

import threading
from pathlib import Path

import pytest
from building import built
from refused import refused

from meshtrial.design.responses import REGISTRY
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.testbed.local import wakefulness
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.linux


def held(device: Path) -> bool:
    return any(found.resolve() == device for found in Path("/proc/self/fd").iterdir())


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpu_dma_latency"
    path.touch()
    monkeypatch.setattr(wakefulness, "DEVICE", path)
    return path


def test_a_look_gives_responses_that_are_registered_and_leaves_the_timers_as_they_were():
    slack = Path(f"/proc/{threading.get_native_id()}/timerslack_ns")
    before = slack.read_text()
    found = wakefulness.look()
    assert found.keys() == {"idle_before", "wakeup_s", "spin_s"} <= REGISTRY.keys()
    assert 0 <= found["idle_before"] <= 1
    assert min(found["wakeup_s"], found["spin_s"]) > 0
    assert slack.read_text() == before


def test_a_plan_holds_the_cores_awake_from_its_first_run_to_its_end(device: Path):
    bed = LocalTestbed({"parameters": {"keep_awake": True}})
    assert bed.environment()["keep_awake"] is True
    assert not held(device)
    bed.before_run()
    bed.before_run()
    assert held(device)
    assert device.read_bytes() == bytes(4)  # 0 µs
    bed.close()
    bed.close()
    assert not held(device)


def test_nothing_is_held_unless_it_was_asked_for(device: Path):
    bed = LocalTestbed()
    bed.before_run()
    assert not held(device)
    assert bed.environment()["keep_awake"] is False


def test_where_it_is_not_permitted_a_study_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wakefulness, "DEVICE", tmp_path / "absent")
    with refused(MissingToolError, names=["keep_awake", str(tmp_path / "absent")]):
        wakefulness.Awake()
    (problem,) = LocalTestbed({"parameters": {"keep_awake": True}}).preflight(built("ambient_vs_no_mesh"))
    assert "keep_awake" in problem
    with refused(UsageError, names=["keep_awake", "cluster"]):
        built("mesh_comparison", backend="kubernetes", treatments="none,istio", keep_awake=True)
