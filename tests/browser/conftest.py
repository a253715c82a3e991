"""One Chromium a worker, and one rendering of each report: what asks of the same report runs on the same worker."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
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
def page_of(tmp_path_factory) -> Callable[[str], Path]:
    """The report of a sample by the study's name, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("reports")
    studies = {study.stem: study for study in reports.samples()}
    return functools.cache(lambda name: reports.make(studies[name], folder / name))


@pytest.fixture(scope="session")
def checker() -> str:
    """Source of axe-core."""
    try:
        return axe.source()
    except axe.NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def visit(chromium, page_of) -> Callable[[str, str], opening.Seen]:
    """A report in a setting, opened once, whatever is asked of it."""
    checker = opening.checker()
    return functools.cache(
        lambda name, setting: opening.look(chromium, page_of(name), opening.SETTINGS[setting], checker)
    )
