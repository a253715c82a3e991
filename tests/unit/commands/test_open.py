"""The newest report, in a browser where there is one."""

import os
import webbrowser
from functools import partial
from pathlib import Path

import pytest
from commandline import meshtrial
from refused import missing

from meshtrial.report import write_entry


@pytest.fixture
def reports(tmp_path, monkeypatch) -> Path:
    """Make three reports, one after another, and other files beside them."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "reports"
    folder.mkdir()
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(folder))
    for moment, (stem, study) in enumerate([("a-1", "alpha"), ("b-1", "beta"), ("a-2", "alpha"), ("index", "")]):
        page = folder / f"{stem}.html"
        page.write_text("<p>report</p>")
        if study:
            records = tmp_path / "studies" / study / stem
            records.mkdir(parents=True)
            write_entry(page, study=study, status="failed", data_dir=records)
        os.utime(page, (1000 + moment, 1000 + moment))
    return folder


meshtrial_open = partial(meshtrial, "open")


def test_without_a_display_it_says_so_and_where_the_newest_lies(reports):
    code, out, _ = meshtrial_open()
    assert code == 0
    path, why = out.splitlines()
    assert path == str(reports / "a-2.html")
    assert why.endswith(f": {(reports / 'a-2.html').as_uri()}")


def test_of_a_study_by_its_name_or_by_its_records(reports, monkeypatch):
    assert str(reports / "b-1.html") in meshtrial_open("beta")[1]
    monkeypatch.chdir(reports.parent / "studies")
    assert str(reports / "a-1.html") in meshtrial_open("alpha/a-1")[1]


@pytest.mark.parametrize("starts", [True, False])
def test_with_a_display_it_asks_the_browser(reports, monkeypatch, starts):
    asked: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or starts)
    code, out, _ = meshtrial_open()
    address = (reports / "a-2.html").as_uri()
    assert (code, asked) == (0, [address])
    assert [line.endswith(f": {address}") for line in out.splitlines()[1:]] == [True] * (not starts)


def test_of_nothing_it_says_what_there_is(reports, tmp_path, monkeypatch):
    code, _, err = meshtrial_open("gamma")
    assert code == 2
    assert missing(err, ["gamma", reports, "alpha", "beta"]) == []
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(tmp_path / "empty"))
    code, _, err = meshtrial_open()
    assert code == 2
    assert missing(err, [tmp_path / "empty"]) == []
