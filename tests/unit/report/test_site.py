"""The static web site: its pages, its entries for them, and its refusals; reports here have a seal only."""

import dataclasses
import hashlib
import json
import re
import shutil
from email.utils import parsedate_to_datetime
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import polars as pl
import pytest
from referencing import Registry, Resource
from refused import refused
from unit.report.synth import asked

from meshtrial import paths
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference import read_study
from meshtrial.records.dataset import StudyData
from meshtrial.records.packed import unpack
from meshtrial.records.store import StudyStore
from meshtrial.report import tables
from meshtrial.report.pages import Section, write_page
from meshtrial.report.site import (
    SUMMARY,
    address,
    all_published,
    checked_base,
    described,
    matches_records,
    publish,
    refuse_foreign,
    write_site_index,
    write_summary,
)
from meshtrial.report.tables import verdicts_sha256

SAMPLES = paths.CHECKOUT / "data" / "sample"


@pytest.fixture(scope="session")
def data() -> StudyData:
    (folder,) = (path.parent for path in SAMPLES.glob("*/*/plan.json"))
    return read_study(StudyStore.open(folder))


@pytest.fixture(scope="session")
def other(sample) -> StudyData:
    return sample("ambient_vs_no_mesh-20261126T074118Z-ea4186cf")


@pytest.fixture
def report(tmp_path):
    def made(data: StudyData, name: str = "report") -> Path:
        path = tmp_path / "reports" / f"{name}.html"
        write_page(path, data.plan.study.title, [Section("Provenance", (tables.provenance(data).html,))])
        return path

    return made


# --- summaries --------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(data, tmp_path):
    folder = tmp_path / address(data)
    folder.mkdir(parents=True)
    write_summary(described(data, address(data)), folder)
    return tmp_path


def test_what_was_written_is_read_back_with_its_place(data, root):
    (found,), broken = all_published(root)
    assert broken == []
    assert found.address == address(data)
    assert found.study.treatments == ("none", "none-aa", "node-proxy")
    assert found == described(data, address(data))
    assert (found.day, found.blocks, found.blocks_planned) == ("21 November 2026", 8, 8)
    assert len(found.verdicts) == len(data.verdicts)


def test_a_file_cannot_send_the_reader_elsewhere(data, root):
    path = root / address(data) / SUMMARY
    path.write_text(json.dumps(json.loads(path.read_text()) | {"address": "https://elsewhere/"}))
    assert [one.address for one in all_published(root)[0]] == [address(data)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": "meshtrial.site/9"}, "meshtrial.site/9"),
        ({"recorded": "yesterday"}, "publish"),
        ({"recorded": "2026-11-21T21:17:26"}, "publish"),
        ({"recorded": "2026-11-21T21:17:26+02:00"}, "publish"),
        ({"headlines": ["a"]}, "publish"),
        ({"headlines": []}, "publish"),
        ({"headlines": [[]]}, "publish"),
        ({"study": {"name": "x"}}, "publish"),
        ({"verdicts": {}}, "publish"),
        ({"more": 1}, "publish"),
    ],
)
def test_one_that_is_not_ours_is_named_with_its_reason(data, root, change, reason):
    path = root / address(data) / SUMMARY
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    found, broken = all_published(root)
    assert found == []
    ((place, why),) = broken
    assert place == address(data)
    assert reason in why
    assert str(root) not in why


def test_the_newest_is_first(data, root):
    written = json.loads((root / address(data) / SUMMARY).read_text())
    for year in ("2025", "2027"):
        folder = root / "studies" / "a" / year
        folder.mkdir(parents=True)
        (folder / SUMMARY).write_text(json.dumps(written | {"recorded": f"{year}-01-01T00:00:00+00:00"}))
    assert [one.recorded[:4] for one in all_published(root)[0]] == ["2027", "2026", "2025"]


def test_a_title_says_what_was_measured_and_where(data, other):
    heading = described(other, address(other)).heading
    assert heading == (
        "The ambient architecture against no mesh: istio-ambient with details and details-nodelay, on a cluster"
    )
    assert described(data, address(data)).heading.endswith("no mesh: node-proxy, on one machine")


def test_what_settles_more_counts_more_and_a_mesh_more_than_a_stand_in(data, other):
    mesh, machine = described(other, address(other)), described(data, address(data))
    settled = [row for row in data.verdicts if row.verdict.conclusive and not (row.twin or row.exploratory)]
    assert machine.weight == (False, len(settled))
    assert dataclasses.replace(machine, verdicts=()).weight < machine.weight < mesh.weight


# --- pages ------------------------------------------------------------------------------------------------------------

BASE = "https://example.org/meshes/"


@pytest.fixture
def studies(data, other):
    return [described(one, address(one)) for one in (other, data)]


def listed(page: str) -> list[str]:
    return re.findall(r"<li>\n<h2>.*?</p>\n</li>", page, flags=re.DOTALL)


def test_every_study_is_listed_and_what_settles_most_is_first(studies, tmp_path):
    for given in (studies, studies[::-1]):
        entries = listed(write_site_index(tmp_path, given).read_text())
        for study, entry in zip(studies, map(unescape, entries), strict=True):
            assert f'href="./{study.address}index.html">{study.heading}</a>' in entry
            for said in (*study.headlines[0], study.study.question, study.day, *study.study.treatments):
                assert said in entry


def test_nothing_is_fetched_from_elsewhere_and_no_script_runs(studies, tmp_path):
    page = write_site_index(tmp_path, studies).read_text()
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="https?:', page)


def test_a_page_that_cannot_be_described_is_listed_with_its_reason(tmp_path):
    page = write_site_index(tmp_path, [], [("studies/a/b/", 'is <not> "whole"')]).read_text()
    assert 'href="./studies/a/b/index.html"' in page
    assert "is &lt;not&gt;" in page
    assert "meshtrial site OUT DIR" in unescape(page)


def test_hostile_studies_are_text(studies, tmp_path):
    bad = '"><script>alert(1)</script>&\x00\n]]>'
    asked = dataclasses.replace(studies[0].study, title=bad, question=bad, name=bad, treatments=(bad,), loads=(bad,))
    hostile = dataclasses.replace(studies[0], study=asked, headlines=((bad, bad), (bad,)), address=f"studies/{bad}/x/")
    assert "<script" not in write_site_index(tmp_path, [hostile], [(bad, bad)], BASE).read_text()
    # XML cannot hold every character of a title.
    root = ElementTree.parse(tmp_path / "feed.xml").getroot()
    assert (root.findtext("channel/item/title") or "").startswith('"><script>')


def test_all_verdicts_are_json_of_the_schema_that_goes_with_the_site(studies, tmp_path):
    write_site_index(tmp_path, studies)
    body = json.loads((tmp_path / "verdicts.json").read_text())
    schema, export = (
        json.loads((tmp_path / "docs" / "schema" / f"{name}.schema.json").read_text()) for name in ("site", "export")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    registry = Registry().with_resource("export.schema.json", Resource.from_contents(export))
    check = jsonschema.Draft202012Validator(schema, registry=registry)
    assert [error.message for error in check.iter_errors(body)] == []
    assert [len(one["verdicts"]) for one in body["studies"]] == [len(one.verdicts) for one in studies]
    del body["studies"][0]["study"]["alpha"]
    assert not check.is_valid(body)


def test_a_page_of_somebody_else_is_not_replaced(studies, tmp_path):
    refuse_foreign(tmp_path / "new")
    refuse_foreign(tmp_path)
    (tmp_path / "index.html").write_text("mine")
    study = next((paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json")).parent
    for folder in (paths.CHECKOUT, study, tmp_path, tmp_path / "index.html"):
        with refused(UsageError, names=[folder]):
            refuse_foreign(folder)
    write_site_index(tmp_path, studies)
    refuse_foreign(tmp_path)


def test_a_study_is_an_item_of_the_feed_with_a_link_that_stays(studies, tmp_path):
    write_site_index(tmp_path, studies, base_url=BASE)
    channel = ElementTree.parse(tmp_path / "feed.xml").getroot().find("channel")
    assert channel is not None
    assert {child.tag for child in channel} >= {"title", "link", "description", "item"}
    for study, item in zip(studies, channel.findall("item"), strict=True):
        assert item.findtext("link") == item.findtext("guid") == BASE + study.address
        assert parsedate_to_datetime(item.findtext("pubDate") or "") == study.moment
        assert " ".join(study.headlines[0][0].split()) in (item.findtext("description") or "")
    (own,) = channel.findall("{http://www.w3.org/2005/Atom}link")
    assert own.attrib == {"href": f"{BASE}feed.xml", "rel": "self", "type": "application/rss+xml"}


@pytest.mark.parametrize(
    "given", ["example.org", "ftp://a.org", "https://", "https://a.org/?q", "https://a b/", "http://["]
)
def test_what_is_no_base_is_refused(given):
    with refused(UsageError):
        checked_base(given)


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
    assert {"report.html", "verdicts.csv", "runs.parquet", "study.json", "records.tar.xz"} <= set(links)
    assert [link for link in links if not (folder / link).is_file()] == []
    assert pl.read_parquet(folder / "runs.parquet").height == data.table.height
    again = read_study(StudyStore.open(unpack(folder / "records.tar.xz", tmp_path / "again")))
    assert again.verdicts == data.verdicts


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
    assert matches_records(folder / "report.html", changed)
    assert not matches_records(folder / "report.html", data)
    publish(data, report(data), root)
    kept = folder / f"report-{verdicts_sha256(changed)[:8]}.html"
    assert kept.read_bytes() == old.read_bytes()
    assert f'href="{kept.name}"' in (folder / "index.html").read_text()
    assert matches_records(folder / "report.html", data)


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
