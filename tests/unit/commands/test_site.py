import dataclasses
import itertools
import re
import shutil
from functools import partial

import pytest
from commandline import SAMPLE, meshtrial
from refused import as_reviewed, missing

from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore
from meshtrial.report import tables, write_entry
from meshtrial.report.pages import Section, write_page
from meshtrial.report.site import SCHEMA

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def reports(tmp_path, monkeypatch, studies):
    folder = tmp_path / "papermill_runs"
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(folder))
    return folder


@pytest.fixture
def data():
    return read_study(StudyStore.open(SAMPLE))


def reported(reports, data, stamp: str, **changes):
    """Write a report with its entry, as a run does."""
    page = reports / f"{data.plan.study.name}-{stamp}.html"
    write_page(page, stamp, [Section("Provenance", (tables.provenance(data).html,))])
    write_entry(page, **{"study": data.plan.study.name, "status": "whole", "data": data} | changes)
    return page


called = partial(meshtrial, "site")


def test_without_a_folder_the_index_over_the_reports_is_written(reports):
    code, out, _ = called()
    assert code == 0
    assert out.strip().endswith("papermill_runs/index.html")
    assert (reports / "index.html").is_file()


def test_the_newest_report_that_matches_records_verdicts_is_published(reports, data, tmp_path):
    reported(reports, data, "20260101T000000Z")
    newest = reported(reports, data, "20260102T000000Z")
    reported(reports, dataclasses.replace(data, verdicts=data.verdicts[1:]), "20260103T000000Z")
    reported(reports, data, "20260104T000000Z", status="failed")
    code, _, err = called(tmp_path / "site", SAMPLE)
    assert (code, err) == (0, "")
    (page,) = (tmp_path / "site").glob("studies/*/*/report.html")
    assert page.read_bytes() == newest.read_bytes()
    assert not (tmp_path / "site" / "feed.xml").exists()
    assert not (tmp_path / "studies").exists()


def test_what_names_the_machine_that_made_it_is_told_when_it_is_published(reports, data, tmp_path):
    page = reported(reports, data, "20260101T000000Z")
    page.write_text(page.read_text().replace("<main", "<p>/home/someone/x</p><main"))
    code, out, _ = called(tmp_path / "site", SAMPLE)
    assert code == 0
    (line,) = (line for line in out.splitlines() if " names " in line)
    assert line == f"{SAMPLE.name}: {page.name} names a file of the machine that made it: /home/someone/x"


def test_a_second_call_keeps_what_is_there_and_lists_it(reports, data, tmp_path):
    root = tmp_path / "site"
    reported(reports, data, "20260101T000000Z")
    assert called(root, SAMPLE)[0] == 0
    address = re.search(r'href="\./(studies/[^"]+)index', (root / "index.html").read_text())
    assert address is not None
    # The report comes from the site, because no other copy exists.
    shutil.rmtree(reports)
    code, out, _ = called(root, SAMPLE, "--base-url", "https://example.org")
    assert code == 0
    # Only the study and the index: no report is made.
    assert [line.split()[0] for line in out.splitlines()] == [f"{root}/{address[1]}index.html", "site"]
    assert (root / address[1] / "report.html").is_file()
    assert f"<link>https://example.org/{address[1]}</link>" in (root / "feed.xml").read_text()
    foreign = root / "studies" / "a" / "b"
    foreign.mkdir(parents=True)
    (foreign / "summary.json").write_text("{}")
    code, out, _ = called(root, SAMPLE)
    assert code == 0
    (broken,) = [line for line in out.splitlines() if "studies/a/b/summary.json:" in line.split()]
    assert missing(broken, ["verdict", f"'{SCHEMA}'"]) == []
    assert "feed.xml" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--base-url", "https://example.org"],
        ["OUT", "--base-url", "example.org"],
        ["OUT", "nowhere"],
        ["FOREIGN"],
    ],
    ids=itertools.count(),
)
def test_bad_usage_is_one_line(reports, tmp_path, arguments):
    (tmp_path / "FOREIGN").mkdir()
    (tmp_path / "FOREIGN" / "index.html").write_text("mine")
    places = [tmp_path / word if word.isupper() else word for word in arguments]
    code, _, err = called(*places)
    assert code == 2
    as_reviewed(err.removesuffix("\n"))
    assert (tmp_path / "FOREIGN" / "index.html").read_text() == "mine"


def test_a_study_that_was_never_analysed_is_named_with_what_to_do(reports, tmp_path):
    folder = shutil.copytree(SAMPLE, tmp_path / "copy")
    (folder / "verdicts.json").unlink()
    code, _, err = called(tmp_path / "site", folder)
    assert code == 1
    as_reviewed(err.removesuffix("\n"))
