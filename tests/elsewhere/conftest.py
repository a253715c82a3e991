"""Tests of the machines that are not this one: what their packages are, and what works without what they lack."""

from pathlib import Path

import pytest


@pytest.fixture
def away() -> None:
    """Run only where everything was taken away: a command that works because it found Envoy shows nothing."""
    if Path("/proc/self").exists():
        pytest.skip("everything is in reach; `make test-elsewhere` takes it away")
