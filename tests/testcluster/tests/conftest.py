"""The test cluster's own suite checks what the cluster tests of meshtrial take for granted."""

from pathlib import Path

import pytest
from testcluster import plugin

HERE = Path(__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    plugin.use(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    plugin.claim(item for item in ours if "cluster" in getattr(item, "fixturenames", ()))
