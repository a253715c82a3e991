"""Tests for other machines: their packages, and what works without what they lack."""

from pathlib import Path

import pytest


@pytest.fixture
def away() -> None:
    """Run only if everything is hidden: a command that found Envoy after all would prove nothing."""
    if Path("/proc/self").exists():
        pytest.skip("everything is in reach; `make test-elsewhere` takes it away")
