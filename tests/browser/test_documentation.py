"""The documentation opened from a folder: on a phone, in dark mode, by keyboard, and with its search."""

import subprocess
import sys
from pathlib import Path

import pytest
from browser import opening

from meshtrial import paths

# Pages with wide tables, code, a drawing and a notebook; other pages are similar.
PAGES = ("README", "docs/reference/parameters", "docs/reference/python", "notebooks/mesh_comparison", "search")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("documentation")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--conf-dir", "docs", ".", str(out)]
    subprocess.run(command, cwd=paths.CHECKOUT, check=True)
    return out


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("setting", ["phone", "1280", "dark"])
def test_it_can_be_read_and_asks_no_host_for_anything(chromium, checker, pages, page, setting):
    path = pages / f"{page}.html"
    looked = opening.look(chromium, path, opening.SETTINGS[setting])
    assert [asked for asked in looked.requests if not asked.startswith(pages.as_uri())] == []
    assert (looked.console, looked.layout) == ([], [])
    # axe-core loads style sheets again, which a browser refuses for a page of a folder.
    assert opening.look(chromium, path, opening.SETTINGS[setting], checker).violations == []


def test_it_is_searched_without_a_server(chromium, pages):
    with opening.opened(chromium, opening.SETTINGS["1280"]) as page:
        page.goto((pages / "index.html").as_uri())
        page.get_by_role("searchbox").first.fill("Hodges")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Method").first.click()
        page.wait_for_url("**/docs/method.html*")
