"""One Chromium, and one rendering of each report."""

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from browser import axe, opening, reports

from meshtrial.records.listing import samples


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
def page_of(request, tmp_path_factory) -> Iterator[Callable[[str], Path]]:
    """Return the report of a sample by its study's name; all reports are made while tests check the first ones."""
    folder = tmp_path_factory.mktemp("reports")
    studies = samples()
    named = [name for name in studies if any(name in item.name for item in request.session.items)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:

        @functools.cache
        def begun(name: str) -> Future[Path]:
            return workers.submit(reports.make, studies[name], folder / name)

        for name in named:
            begun(name)
        yield lambda name: begun(name).result()
        workers.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def checker() -> str:
    """Source of axe-core."""
    try:
        return axe.source()
    except axe.NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def visit(chromium, page_of) -> Callable[[str, str], opening.Seen]:
    """Return a report in a setting; each is opened once."""
    checker = opening.checker()
    return functools.cache(
        lambda name, setting: opening.look(chromium, page_of(name), opening.SETTINGS[setting], checker)
    )
