"""Open a page in a real browser in five settings; one visit collects everything that tests check."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from browser import axe
from playwright.sync_api import Browser, Page, sync_playwright

LAYOUT = (Path(__file__).with_name("layout.js")).read_text(encoding="utf-8")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Chromium sends no traffic of its own.
QUIET = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class Setting:
    """One setting in which a page is opened."""

    name: str
    width: int  # of the window, in CSS pixels
    height: int
    scheme: str = "light"  # light or dark
    media: str = "screen"  # screen or print
    phone: bool = False  # a touch screen with a viewport of its own
    # Rules of axe-core to check; None checks none. A rule is checked in one setting only if others give the same
    # result, because it takes seconds per page.
    rules: dict[str, Any] | None = None


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("wide", 1920, 1080),
        Setting("1280", 1280, 800, rules={}),
        Setting("phone", 390, 844, phone=True, rules={"rules": {"color-contrast": {"enabled": False}}}),
        Setting("dark", 1280, 800, scheme="dark", rules={"runOnly": ["color-contrast"]}),
        # A4 between margins of 10 mm, at 96 px per inch.
        Setting("print", 718, 1046, media="print"),
    )
}


@dataclass
class Seen:
    """The findings of one visit."""

    console: list[str] = field(default_factory=list)  # errors and warnings, the content security policy's among them
    # Requested addresses, without the page's own file and `data:`.
    requests: list[str] = field(default_factory=list)
    # Text that cannot be read, with folds closed and with every fold open.
    layout: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)  # of axe-core, serious or critical
    nameless: list[str] = field(default_factory=list)  # drawings and pictures without alternative text
    height: int = 0  # of the page when it opens, in CSS pixels

    def wrong(self) -> list[str]:
        """All of it."""
        return [*self.console, *self.requests, *self.layout, *self.violations, *self.nameless]


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium, closed at the end of the block."""
    # The path of Chromium's socket has at most 108 bytes, and a test's own folder can be longer.
    with tempfile.TemporaryDirectory(prefix="chromium-", dir="/tmp") as short, sync_playwright() as driver:
        environment: dict[str, str | float | bool] = {**os.environ, "TMPDIR": short}
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET), env=environment)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(started: Browser, setting: Setting, **options: Any) -> Iterator[Page]:
    """Return a window of this setting; ``options`` are those of a browser context."""
    context = started.new_context(
        viewport={"width": setting.width, "height": setting.height},
        color_scheme=setting.scheme,  # type: ignore[arg-type]
        is_mobile=setting.phone,
        has_touch=setting.phone,
        **options,
    )
    try:
        page = context.new_page()
        page.emulate_media(media=setting.media)  # type: ignore[arg-type]
        yield page
    finally:
        context.close()


def look(started: Browser, path: Path, setting: Setting, checker: str = "") -> Seen:
    """Open a page and collect its problems; accessibility is checked only with the source of axe-core."""
    seen = Seen()
    # The page's policy blocks other scripts, so the checkers are injected from outside the page.
    with opened(started, setting) as page:
        page.on("console", lambda said: seen.console.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: seen.console.append(str(error)))
        page.on("request", lambda asked: seen.requests.append(asked.url))
        page.goto(path.as_uri())
        seen.height = page.evaluate("document.documentElement.scrollHeight")
        seen.nameless = page.evaluate(
            "[...document.querySelectorAll('svg, img')]"
            ".filter(e => !(e.getAttribute('aria-label') || e.alt || '').trim()).map(e => e.outerHTML.slice(0, 80))"
        )
        seen.layout = page.evaluate(LAYOUT)
        if setting.media == "screen":
            page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
            page.wait_for_timeout(50)  # the page updates what scrolls
            seen.layout += [f"folds open: {line}" for line in page.evaluate(LAYOUT)]
        if checker and setting.rules is not None:
            seen.violations = violations(page, checker, setting.rules)
    own = path.as_uri()
    seen.requests = [url for url in seen.requests if url.partition("#")[0] != own and not url.startswith("data:")]
    return seen


def violations(page: Page, checker: str, rules: dict[str, Any]) -> list[str]:
    """Return the serious and critical problems that axe-core finds on a page, one line per rule."""
    page.evaluate(checker)
    found: list[dict[str, Any]] = page.evaluate(
        "rules => axe.run(document, {resultTypes: ['violations'], ...rules}).then(found => found.violations)", rules
    )
    return [
        f"{one['id']} ({one['impact']}), {len(one['nodes'])} times: {one['help']}; first at {one['nodes'][0]['target']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def checker() -> str:
    """Source of axe-core; empty if it is unavailable."""
    try:
        return axe.source()
    except axe.NotHereError:
        return ""
