"""Facts recorded about a machine, and its state before a run: read from this machine, never how fast it is."""

import threading
from pathlib import Path

import pytest
from building import built
from refused import refused

from meshtrial.design.responses import REGISTRY
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.testbed.local import host
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.linux


def kernel_says(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Files below /sys are these and no others."""
    read = Path.read_text

    def read_text(path: Path, *arguments: object, **options: object) -> str:
        if str(path).startswith("/sys/"):
            if str(path) not in files:
                raise FileNotFoundError(path)
            return files[str(path)]
        return read(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)


def test_the_idle_driver_is_described_as_far_as_the_kernel_reports_it(monkeypatch):
    cpuidle = "/sys/devices/system/cpu/cpuidle"
    files = {f"{cpuidle}/current_driver": "intel_idle\n", f"{cpuidle}/current_governor_ro": "menu\n"}
    kernel_says(monkeypatch, files | {"/sys/module/haltpoll/parameters/guest_halt_poll_ns": "200000\n"})
    host_facts = host.describe()
    assert (host_facts["cpu_idle"], host_facts["halt_polling_ns"]) == ("driver intel_idle, governor menu", 200000)
    files.clear()
    kernel_says(monkeypatch, {})
    host_facts = host.describe()
    assert (host_facts["cpu_idle"], host_facts["halt_polling_ns"]) == ("not reported", 0)


def test_available_resources_are_read_or_unlimited():
    found = host.available()
    assert found.files_per_process is None or found.files_per_process > 0
    assert found.memory_bytes is None or found.memory_bytes > 0


def held(device: Path) -> bool:
    return any(found.resolve() == device for found in Path("/proc/self/fd").iterdir())


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpu_dma_latency"
    path.touch()
    monkeypatch.setattr(host, "DEVICE", path)
    return path


def test_a_look_gives_responses_that_are_registered_and_leaves_the_timers_as_they_were():
    slack = Path(f"/proc/{threading.get_native_id()}/timerslack_ns")
    before = slack.read_text()
    found = host.sample()
    times = {"wakeup_s", "spin_s", "memory_latency_s", "loopback_s"}
    assert found.keys() == times | {"idle_before", "free_huge_pages"} <= REGISTRY.keys()
    assert 0 <= found["idle_before"] <= 1
    assert 0 <= found["free_huge_pages"] <= 1
    assert min(found[name] for name in times) > 0
    assert slack.read_text() == before


def test_a_chain_visits_every_node_of_its_memory_before_it_returns():
    memory = bytearray(8 * 4 * 50)
    chain = host.Chain(memoryview(memory), 50)
    at, visited = chain.at, set()
    for _ in range(50):
        at = chain.cells[at]
        visited.add(at)
    assert at == chain.at
    assert visited == set(range(0, 200, 4))


def test_free_memory_is_in_huge_pages_as_far_as_its_blocks_are_large(tmp_path: Path):
    path = tmp_path / "buddyinfo"
    # 8 pages in single ones and 2 blocks of 512; then 1 block of 1,024 and 1,016 pages in blocks of 8.
    path.write_text("Node 0, zone DMA 8 0 0 0 0 0 0 0 0 2 0\nNode 0, zone Normal 0 0 0 127 0 0 0 0 0 0 1\n")
    assert host.free_huge_pages(path) == 2048 / (2048 + 1024)
    assert host.free_huge_pages(tmp_path / "absent") is None


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
    monkeypatch.setattr(host, "DEVICE", tmp_path / "absent")
    with refused(MissingToolError, names=["keep_awake", str(tmp_path / "absent")]):
        host.CpuLatencyHold()
    (problem,) = LocalTestbed({"parameters": {"keep_awake": True}}).preflight(built("ambient_vs_no_mesh"))
    assert "keep_awake" in problem
    with refused(UsageError, names=["keep_awake", "cluster"]):
        built("mesh_comparison", backend="kubernetes", treatments="none,istio", keep_awake=True)
