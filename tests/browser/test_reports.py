"""Every sample report in a real browser: wide, at 1280 px, on a phone, in dark mode and on paper."""

import pytest
from browser import opening

from meshtrial.records.listing import samples

STUDIES = list(samples())
CHECKED = [name for name, setting in opening.SETTINGS.items() if setting.rules is not None]

each_study = pytest.mark.parametrize("study", STUDIES)
each_setting = pytest.mark.parametrize("setting", opening.SETTINGS)


@each_study
@each_setting
def test_it_opens_without_an_error_and_asks_no_host_for_anything(visit, study, setting):
    seen = visit(study, setting)
    assert seen.console == []
    assert seen.requests == []


@each_study
@each_setting
def test_no_text_is_cut_off_or_lies_over_another(visit, study, setting):
    assert visit(study, setting).layout == []


# Texts of the first screen below 14 px (10 px in a drawing), and the position of the six checks.
FIRST = """() => {
  const small = text => {
    const own = parseFloat(getComputedStyle(text).fontSize);
    if (!text.closest("svg")) return own < 13.95;
    const scale = text.getScreenCTM();
    return own * Math.hypot(scale.a, scale.b) < 10;
  };
  const texts = [...document.querySelectorAll(".mt-answer *")].filter(
    one => one.checkVisibility() && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  const ahead = document.querySelector(".mt-ahead") ?? document.querySelector(".mt-checked");
  return {small: texts.filter(small).map(one => one.textContent), top: ahead.getBoundingClientRect().top};
}"""


@each_study
def test_a_phone_shows_at_once_whether_to_trust_it_in_letters_that_can_be_read(chromium, page_of, study):
    with opening.opened(chromium, opening.Setting("narrow", 400, 800, phone=True)) as page:
        page.goto(page_of(study).as_uri())
        found = page.evaluate(FIRST)
    assert found["small"] == []
    assert found["top"] < 800


@each_study
def test_every_drawing_says_in_words_what_it_shows(visit, study):
    assert visit(study, "1280").nameless == []


@each_study
@pytest.mark.parametrize("setting", CHECKED)
def test_axe_finds_nothing_serious(visit, checker, study, setting):
    assert visit(study, setting).violations == []


def test_the_checkers_find_what_is_there_to_be_found(chromium, checker, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><html><body style='width:2000px'><svg></svg><img src='http://127.0.0.1:9/x'>"
        "<div style='width:40px;overflow:hidden;white-space:nowrap'>words that are cut off</div>"
        "<p style='position:absolute;top:200px'>below</p><p style='position:absolute;top:200px'>above it</p>"
        "<p style='color:#aaa;background:#fff'>faint</p></body></html>"
    )
    seen = opening.look(chromium, page, opening.SETTINGS["1280"], checker)
    assert seen.requests == ["http://127.0.0.1:9/x"]
    assert seen.console  # the picture is not there
    assert len(seen.nameless) == 2
    assert {line.partition(" (")[0] for line in seen.violations} >= {"color-contrast", "image-alt", "html-has-lang"}
    found = "\n".join(seen.layout)
    for what in ("px wide in a window", "cut off by", "over one another"):
        assert what in found
