"""A page opened in a real browser: five settings, and everything that a test asks about it, looked at in one visit."""

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
# It keeps to this machine: no traffic of its own.
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
    """How a reader looks at a page."""

    name: str
    width: int  # of the window, in CSS pixels
    height: int
    scheme: str = "light"  # light or dark
    media: str = "screen"  # screen or print
    phone: bool = False  # a touch screen with its own idea of a viewport
    # Rules of axe-core that are asked here; None asks nothing. What was asked in one setting and cannot come out
    # otherwise in another is not asked again: it takes seconds a page.
    rules: dict[str, Any] | None = None


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("wide", 1920, 1080),
        Setting("1280", 1280, 800, rules={}),
        Setting("phone", 390, 844, phone=True, rules={"rules": {"color-contrast": {"enabled": False}}}),
        Setting("dark", 1280, 800, scheme="dark", rules={"runOnly": ["color-contrast"]}),
        # A4 between margins of 10 mm, at 96 px an inch.
        Setting("print", 718, 1046, media="print"),
    )
}


@dataclass
class Seen:
    """What one visit found."""

    console: list[str] = field(default_factory=list)  # errors and warnings, the content security policy's among them
    # Addresses that were asked for, without the page's own file and `data:`.
    requests: list[str] = field(default_factory=list)
    # Text that cannot be read, as the page opens and with every fold opened.
    layout: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)  # of axe-core, serious or critical
    nameless: list[str] = field(default_factory=list)  # drawings and pictures without alternative text
    height: int = 0  # of the page as it opens, in CSS pixels

    def wrong(self) -> list[str]:
        """All of it."""
        return [*self.console, *self.requests, *self.layout, *self.violations, *self.nameless]


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium, which ends with this."""
    # Chromium's socket lies in its temporary folder, and may have 108 bytes of path: a test's own folder is longer.
    with tempfile.TemporaryDirectory(prefix="chromium-", dir="/tmp") as short, sync_playwright() as driver:
        environment: dict[str, str | float | bool] = {**os.environ, "TMPDIR": short}
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET), env=environment)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(started: Browser, setting: Setting, **options: Any) -> Iterator[Page]:
    """A window of this setting; ``options`` are those of a browser context."""
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
    """Open a page and write down what is wrong with it; of accessibility nothing without the source of axe-core."""
    seen = Seen()
    # The page's policy lets no script in but its own; the checkers come from outside the page.
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
            page.wait_for_timeout(50)  # the page looks at what scrolls now
            seen.layout += [f"folds open: {line}" for line in page.evaluate(LAYOUT)]
        if checker and setting.rules is not None:
            seen.violations = violations(page, checker, setting.rules)
    own = path.as_uri()
    seen.requests = [url for url in seen.requests if url.partition("#")[0] != own and not url.startswith("data:")]
    return seen


def violations(page: Page, checker: str, rules: dict[str, Any]) -> list[str]:
    """What axe-core finds on a page as it stands, serious or critical, a line a rule."""
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
    """Source of axe-core; empty where it cannot be had."""
    try:
        return axe.source()
    except axe.NotHereError:
        return ""
