"""A reader uses a page: sorts by keyboard, reads it without scripts, prints it, and makes it again."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import opening, reports

from meshtrial.records.listing import samples

MESHES = next(name for name in samples() if name.startswith("mesh_comparison"))
OPEN_ALL = "for (const fold of document.querySelectorAll('details')) fold.open = true"
TEXT = (
    "[...document.querySelectorAll('body *')].filter(e => !e.children.length && e.tagName !== 'SCRIPT')"
    ".map(e => e.textContent.trim()).filter(Boolean)"
)
MOST_STOPS = 400  # presses of the Tab key before the test gives up


@pytest.fixture
def meshes(page_of) -> Path:
    """The largest sample's report."""
    return page_of(MESHES)


@pytest.fixture
def page(chromium, meshes) -> Iterator[opening.Page]:
    """It at 1280 px."""
    errors: list[str] = []
    with opening.opened(chromium, opening.SETTINGS["1280"]) as view:
        view.on("pageerror", lambda error: errors.append(str(error)))
        view.goto(meshes.as_uri())
        yield view
    assert errors == []


def column(page: opening.Page) -> list[list[float | None]]:
    """Return the stored numbers of the focused heading's column, one list per group of rows."""
    found: list[list[float | None]] = page.evaluate(
        """() => {
            const head = document.activeElement.closest("th"), place = head.cellIndex, groups = [[]];
            for (const row of head.closest("table").tBodies[0].rows) {
                if (row.classList.contains("mt-group")) { groups.push([]); continue; }
                const stored = row.cells[place].querySelector("data");
                groups[groups.length - 1].push(stored ? Number(stored.value) : null);
            }
            return groups.filter(group => group.length);
        }"""
    )
    return found


def sort_said(page: opening.Page) -> str | None:
    said: str | None = page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')")
    return said


def test_a_table_is_sorted_by_keyboard_alone(page):
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.mt-sort') && document.activeElement.innerText === 'change'"):
            break
    else:
        pytest.fail("the Tab key never came to the heading of the column `change`")
    written = column(page)
    assert any(group != sorted(group) for group in written)
    page.keyboard.press("Enter")
    assert sort_said(page) == "ascending"
    assert column(page) == [sorted(group) for group in written]
    page.keyboard.press("Space")
    assert sort_said(page) == "descending"
    assert column(page) == [sorted(group, reverse=True) for group in written]
    page.keyboard.press("Enter")
    assert sort_said(page) is None
    assert column(page) == written


def test_every_table_whose_rows_have_no_order_of_their_own_can_be_sorted(page):
    tables = page.evaluate(
        "[...document.querySelectorAll('table.mt-sortable')]"
        ".map(t => [t.tHead.rows[0].cells.length, t.tHead.querySelectorAll('th > button').length])"
    )
    assert len(tables) > 10
    assert all(heads == buttons for heads, buttons in tables)


def test_what_is_not_there_comes_last_whichever_way_it_is_sorted(page):
    page.evaluate(OPEN_ALL)
    for _ in range(2):
        shown = page.evaluate(
            """() => {
                const table = [...document.querySelectorAll("table.mt-sortable")]
                    .find(one => one.getAttribute("aria-label").startsWith("Checks of load"));
                table.tHead.rows[0].cells[1].querySelector("button").click();
                return [...table.tBodies[0].rows].map(row => row.cells.length > 1 ? row.cells[1].textContent : "");
            }"""
        )
        groups = "\t".join(shown).split("\t\t") if "" in shown else ["\t".join(shown)]
        assert all(group.split("\t")[-1] == "–" for group in groups)


def test_without_a_script_all_of_it_is_there(chromium, meshes):
    setting = opening.SETTINGS["1280"]
    texts = []
    for enabled in (True, False):
        with opening.opened(chromium, setting, java_script_enabled=enabled) as view:
            view.goto(meshes.as_uri())
            texts.append(view.evaluate(TEXT))
            assert bool(view.locator(".mt-sort").count()) == enabled
    assert texts[0] == texts[1]
    assert len(texts[0]) > 1000


def test_on_paper_every_fold_is_open_without_a_script(chromium, meshes):
    setting = opening.SETTINGS["print"]
    with opening.opened(chromium, setting, java_script_enabled=False) as view:
        view.goto(meshes.as_uri())
        heights = view.evaluate(
            "[...document.querySelectorAll('.mt-fold > .mt-folded')].map(e => e.checkVisibility() && e.offsetHeight)"
        )
        numbers = view.evaluate("[...document.querySelectorAll('.mt-data')].some(e => e.checkVisibility())")
    assert len(heights) > 5
    assert all(heights)
    assert not numbers


def test_what_scrolls_and_nothing_else_is_a_stop_of_the_tab_key(page):
    page.evaluate(OPEN_ALL)
    page.wait_for_timeout(100)
    wrong = page.evaluate(
        "[...document.querySelectorAll('.mt-scroll')].filter(e => (e.scrollWidth > e.clientWidth + 1"
        " || e.scrollHeight > e.clientHeight + 1) !== (e.tabIndex === 0)).map(e => e.getAttribute('aria-label'))"
    )
    assert wrong == []


def test_the_same_records_give_the_same_page_byte_for_byte(tmp_path):
    """Also where Python orders its sets otherwise."""
    study = next(path for path in samples().values() if path.is_dir())
    made = []
    for seed in ("1", "2"):
        folder = tmp_path / "made"
        made.append(reports.make(study, folder, PYTHONHASHSEED=seed).read_bytes())
        shutil.rmtree(folder)
    assert made[0] == made[1]


def test_a_page_does_not_say_where_on_a_disk_it_was_made(meshes):
    folder = re.escape(str(Path(meshes).parents[1]))
    assert not re.findall(rf"study_dir = .*{folder}.*", meshes.read_text())
