"""One Chromium and one rendering of each report for all tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import axe, opening, reports


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)
            if opening.CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="no Chromium on PATH; apt install chromium"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[opening.Browser]:
    with opening.browser() as started:
        yield started


@pytest.fixture(scope="session")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The reports of all samples, by the study's name."""
    return reports.make_all(reports.samples(), tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="session")
def checker() -> str:
    """Source of axe-core."""
    try:
        return axe.source()
    except axe.NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def visits(chromium, pages) -> dict[tuple[str, str], opening.Seen]:
    """Every report in every setting, opened once."""
    checker = opening.checker()
    return {
        (name, setting.name): opening.look(chromium, page, setting, checker)
        for name, page in pages.items()
        for setting in opening.SETTINGS.values()
    }
