"""What is recorded of a machine: how its idle cores are driven too, where the kernel says it."""

from pathlib import Path

import pytest

from meshtrial.testbed.local import host


def kernel_says(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Files below /sys are these, and no others are there."""
    read = Path.read_text

    def read_text(path: Path, *arguments: object, **options: object) -> str:
        if str(path).startswith("/sys/"):
            if str(path) not in files:
                raise FileNotFoundError(path)
            return files[str(path)]
        return read(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)


@pytest.mark.linux
def test_how_idle_cores_are_driven(monkeypatch):
    cpuidle = "/sys/devices/system/cpu/cpuidle"
    said = {f"{cpuidle}/current_driver": "intel_idle\n", f"{cpuidle}/current_governor_ro": "menu\n"}
    kernel_says(monkeypatch, said | {"/sys/module/haltpoll/parameters/guest_halt_poll_ns": "200000\n"})
    found = host.describe()
    assert (found["cpu_idle"], found["halt_polling_ns"]) == ("driver intel_idle, governor menu", 200000)


@pytest.mark.linux
def test_a_kernel_that_says_nothing(monkeypatch):
    kernel_says(monkeypatch, {})
    found = host.describe()
    assert (found["cpu_idle"], found["cpu_governor"], found["halt_polling_ns"]) == ("not reported", "not reported", 0)
