"""The explorer in a real JupyterLab and browser: it runs, and a changed control changes the view."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser.opening import CHROMIUM, QUIET
from playwright.sync_api import sync_playwright

from meshtrial import paths

# How long to wait for a certain event on a busy machine.
START_S, RUN_S, CHANGE_S = 240, 240, 120
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt install chromium"),
]


@dataclass(frozen=True)
class Lab:
    """A JupyterLab of the test's own."""

    url: str
    token: str

    def notebook(self, name: str) -> str:
        return f"{self.url}lab/tree/{name}?token={self.token}"


@pytest.fixture
def lab(tmp_path, monkeypatch) -> Iterator[Lab]:
    """Run it on loopback and a free port, with its own folders and token; it and its kernels end with the test."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    for path in paths.NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(path, notebooks)
    token = secrets.token_hex(16)
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    own = folders | {"IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_TOKEN": token, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip", "127.0.0.1", "--ServerApp.port=0"]
    command += ["--allow-root", f"--ServerApp.root_dir={notebooks}"]
    settings = tmp_path / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    # As `make lab` sets it: no news from any network.
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=os.environ | own, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield Lab(_address(Path(folders["JUPYTER_RUNTIME_DIR"]), server, tmp_path / "lab.log"), token)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        finally:
            _end_group(server.pid)


def _address(runtime: Path, server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the URL that the server writes once it listens; fail if it never does."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            try:
                return str(json.loads(path.read_text())["url"])
            except (ValueError, KeyError):
                pass  # it is being written
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture
def page(monkeypatch) -> Iterator[Any]:
    """A browser of the test's own, 1400 points wide."""
    # Chromium keeps a socket in its profile, whose path must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mt-") as short, monkeypatch.context() as patched:
        patched.setenv("TMPDIR", short)
        yield from _browser()


def _browser() -> Iterator[Any]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield browser.new_page(viewport={"width": 1400, "height": 1000})
        finally:
            browser.close()


def run_all(page: Any, lab: Lab) -> None:
    page.goto(lab.notebook("explore.ipynb"), timeout=START_S * 1000)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=START_S * 1000)
    page.get_by_text("| Idle").wait_for(timeout=START_S * 1000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".jp-OutputArea img.mt-svg:visible").first.wait_for(timeout=RUN_S * 1000)


def picture(page: Any, said: str) -> str:
    """Return the data of the figure whose description begins like this, once it is visible."""
    image = page.locator(f"img.mt-svg[alt^='{said}']:visible")
    image.wait_for(timeout=CHANGE_S * 1000)
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    return str(image.get_attribute("src"))


def tab(page: Any, title: str) -> None:
    page.locator(".widget-tab .lm-TabBar-tabLabel", has_text=title).click()


def test_a_changed_widget_changes_the_plot_and_a_changed_margin_a_verdict(lab, page, tmp_path):
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    run_all(page, lab)
    views = page.locator(".jp-OutputArea-output .widget-html").locator("visible=true")

    # Verdicts: in the declared analysis the node proxy is slower by more than the margin.
    assert "As declared before the runs" in " ".join(views.all_inner_texts())
    page.get_by_role("button", name="Table", exact=True).click()
    row = page.locator("tr[data-row*='latency_p50_s|node-proxy']:visible").last
    row.wait_for(timeout=CHANGE_S * 1000)
    assert "material" in row.inner_text()
    for title, margin in (("Margin", "'200%'"), ("at least", "'200%,5ms'")):
        handle = page.locator(".widget-slider", has_text=title).locator(".noUi-handle")
        handle.focus()
        handle.press("End")
        # The lines of Python are the last part of an update. An update that moves a button loses a click on it.
        page.locator(".mt-python:visible", has_text=f"margin={margin}").wait_for(timeout=CHANGE_S * 1000)
    moved = page.locator("tr[data-row*='latency_p50_s|node-proxy']:visible", has_text="below margin")
    moved.filter(has_text="after the fact").wait_for(timeout=CHANGE_S * 1000)
    assert "After the fact" in " ".join(views.all_inner_texts())
    page.get_by_role("button", name="Picture", exact=True).click()
    later = picture(page, "After the fact: ")
    page.get_by_role("button", name="Back to what was declared").click()
    assert picture(page, "Forest plot against none") != later

    # All runs: another response changes the plot.
    tab(page, "All runs")
    before = picture(page, "p50 latency / ms of every run")
    page.locator(".widget-dropdown", has_text="Response").locator("select").select_option(index=1)
    assert picture(page, "CPU per request of app and data plane") != before

    # One run: its requests, and a log.
    tab(page, "One run")
    picture(page, "300 requests of run 01-1-none")
    page.get_by_role("button", name="Logs", exact=True).click()
    page.locator("pre.mt-log:visible", has_text="listening on tcp").wait_for(timeout=CHANGE_S * 1000)

    # Two studies on the same axes.
    tab(page, "Two studies")
    picture(page, "Forest plot against none, none@details")

    assert errors == []
    foreign = [url for url in asked if not url.startswith((lab.url, lab.url.replace("http", "ws"), "data:", "blob:"))]
    assert foreign == []
