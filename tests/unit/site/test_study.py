import dataclasses
import hashlib
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from refused import refused
from unit.report.synth import asked

from meshtrial.errors import RecordError
from meshtrial.inference import read_study
from meshtrial.records.packed import unpack
from meshtrial.records.store import StudyStore
from meshtrial.report.tables import verdicts_sha256
from meshtrial.site.study import address, publish, says_the_same


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_address_is_that_of_the_study_and_not_of_its_folder(data, tmp_path):
    assert re.fullmatch(r"studies/ambient_vs_no_mesh/20261121T\d{6}Z-77c58730/", address(data))
    moved = shutil.copytree(data.path, tmp_path / "somewhere else")
    assert address(read_study(StudyStore.open(moved))) == address(data)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".hidden", "a b", "ü"])
def test_a_name_that_is_no_folder_is_refused(data, name):
    with refused(RecordError):
        address(asked(data, name=name))


def test_a_study_without_runs_or_of_no_time_is_refused(data):
    with refused(RecordError):
        address(dataclasses.replace(data, runs=()))
    first = dataclasses.replace(data.runs[0], start_unix_s=-1e300)
    with refused(RecordError):
        address(dataclasses.replace(data, runs=(first,)))


def test_beside_the_page_lie_report_data_and_records(data, report, tmp_path):
    made = report(data)
    folder = tmp_path / "site" / publish(data, made, tmp_path / "site").address
    assert (folder / "report.html").read_bytes() == made.read_bytes()
    page = (folder / "index.html").read_text()
    links = [link for link in re.findall(r'href="([^"#]+)"', page) if ":" not in link and not link.startswith("../")]
    assert {"report.html", "verdicts.csv", "runs.parquet", "study.json", "records.zip"} <= set(links)
    assert [link for link in links if not (folder / link).is_file()] == []
    assert pl.read_parquet(folder / "runs.parquet").height == data.table.height
    again = read_study(StudyStore.open(unpack(folder / "records.zip", tmp_path / "again")))
    assert again.verdicts == data.verdicts


def test_the_page_says_question_verdict_digest_and_how_to_cite(data, report, tmp_path):
    page = (tmp_path / "site" / publish(data, report(data), tmp_path / "site").address / "index.html").read_text()
    assert data.plan.study.question in page
    assert "node-proxy" in page
    assert "Cite this" in page
    assert page.count(data.plan.sha256) >= 2
    assert verdicts_sha256(data) in page


def test_the_same_study_gives_the_same_bytes(data, report, tmp_path):
    made = report(data)
    for name in ("one", "two"):
        publish(data, made, tmp_path / name)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    publish(data, made, tmp_path / "one")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


@pytest.mark.usefixtures("undrawn")
def test_a_second_study_leaves_the_first_as_it_is(data, other, report, tmp_path):
    root = tmp_path / "site"
    publish(data, report(data), root)
    before = digests(root)
    publish(other, report(other, "other"), root)
    assert address(other) != address(data)
    assert before.items() <= digests(root).items()


@pytest.mark.usefixtures("undrawn")
def test_a_report_of_other_verdicts_stays_beside_the_new_one(data, report, tmp_path):
    root = tmp_path / "site"
    changed = dataclasses.replace(data, verdicts=data.verdicts[:-1])
    old = report(changed, "old")
    publish(changed, old, root)
    folder = root / address(data)
    assert says_the_same(folder / "report.html", changed)
    assert not says_the_same(folder / "report.html", data)
    publish(data, report(data), root)
    kept = folder / f"report-{verdicts_sha256(changed)[:8]}.html"
    assert kept.read_bytes() == old.read_bytes()
    assert f'href="{kept.name}"' in (folder / "index.html").read_text()
    assert says_the_same(folder / "report.html", data)


def test_what_cannot_be_written_is_one_line(data, report, tmp_path):
    (tmp_path / "site").write_text("")
    with refused(RecordError, names=[tmp_path / "site" / address(data)]):
        publish(data, report(data), tmp_path / "site")


def test_hostile_names_are_text(data, report, tmp_path):
    bad = '"><script>alert(1)</script>'
    hostile = asked(data, title=bad, question=bad, app=bad)
    page = (tmp_path / publish(hostile, report(data), tmp_path).address / "index.html").read_text()
    assert "<script" not in page
    assert "&lt;script" in page
