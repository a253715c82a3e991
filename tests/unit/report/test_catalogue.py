import json
import re
from urllib.parse import unquote

import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.report import read_entry, write_entry, write_index

BEGIN = '{"schema": "meshtrial.report/1", "study": "s", "title": "t", "status": "whole"'


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "papermill_runs"
    folder.mkdir()
    return folder


def report(runs, name: str, data, **changes):
    (runs / f"{name}.html").write_text("<p>report</p>")
    (runs / f"{name}.ipynb").write_text("{}")
    return write_entry(runs / f"{name}.html", **{"study": "ambient", "status": "whole", "data": data} | changes)


def entries(runs, *more) -> list[str]:
    return re.findall(r"<li><h2>.*?</li>", write_index(runs, *more).read_text(), flags=re.DOTALL)


def test_a_report_is_listed_with_what_it_found_and_where_it_lies(runs, synth):
    data = synth.study_data(runs.parent)
    report(runs, "a", data)
    (entry,) = entries(runs, runs.parent / "data" / "studies")
    assert "sidecar+mtls is slower at p50" in entry
    assert "10 of 10 blocks" in entry
    assert "none, none-aa, node-proxy, sidecar+mtls" in entry
    assert "● whole" in entry
    links = [unquote(link) for link in re.findall(r'href="([^"]+)"', entry)]
    assert links[:3] == ["./a.html", "./a.html", "./a.ipynb"]
    assert all((runs / link).exists() for link in links)
    assert str(runs) not in entry


def test_newest_first(runs, data):
    for name, date in (("old", "2026-01-01"), ("new", "2026-03-01"), ("middle", "2026-02-01")):
        path = report(runs, name, data)
        body = json.loads(path.read_text()) | {"date": f"{date}T00:00:00+00:00", "title": name}
        path.write_text(json.dumps(body))
    assert [re.search(r">(\w+)</a></h2>", e).group(1) for e in entries(runs)] == ["new", "middle", "old"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is missing"),
        ("{", "cannot be read"),
        ("[]", "does not have the schema"),
        ('{"schema": "meshtrial.report/9"}', "does not have the schema"),
        ('{"schema": "meshtrial.report/1"}', "is incomplete"),
        (f'{BEGIN}, "date": 5}}', "is incomplete (date is 5, not text)"),
        (f'{BEGIN}, "date": "", "loads": 3}}', "is incomplete (loads is 3, not a list)"),
    ],
)
def test_a_broken_entry_is_listed_with_its_reason(runs, data, content, reason):
    path = report(runs, "a", data)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    (entry,) = entries(runs)
    assert reason in entry
    assert 'href="./a.html"' in entry
    with refused(UsageError, names=["a.json"]):
        read_entry(path)


def test_failed_and_interrupted_runs_are_listed(runs, data):
    write_entry(runs / "x.html", study="s", status="failed", message="rps = -1: must be 0 or more")
    write_entry(runs / "y.html", study="s", status="interrupted", plan=data.plan, data_dir=data.path)
    texts = entries(runs)
    assert any("✕ failed" in text and "rps = -1" in text for text in texts)
    stopped = next(text for text in texts if "◇ interrupted" in text)
    assert data.plan.study.title in stopped
    assert "report: missing" in stopped


def test_entries_hold_no_machine_path_and_an_empty_folder_says_how_to_begin(runs, data, tmp_path):
    text = report(runs, "a", data).read_text()
    assert str(runs) not in text
    assert json.loads(text)["html"] == "a.html"
    assert "make study" in write_index(tmp_path / "none-yet").read_text()


def test_records_without_a_report_are_listed(runs, synth):
    data = synth.study_data(runs.parent)
    data.path.joinpath("plan.json").write_text("{}")
    studies = runs.parent / "data" / "studies"
    assert "Records without a report" in write_index(runs, studies).read_text()
    report(runs, "a", data)
    assert "Records without a report" not in write_index(runs, studies).read_text()


def test_hostile_names_and_messages_are_escaped(runs, data):
    bad = '"><script>alert(1)</script>'
    path = report(runs, "a", data)
    body = json.loads(path.read_text())
    body |= {"title": bad, "study": bad, "message": bad, "headlines": [bad], "treatments": [bad], "status": bad}
    path.write_text(json.dumps(body))
    (runs / "b'\"><script>.ipynb").write_text("{}")
    assert "<script" not in write_index(runs).read_text()


def test_an_entry_cannot_send_the_reader_elsewhere(runs, data):
    path = report(runs, "a", data)
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"html": "javascript:alert(1)", "notebook": "https://x/"})
    )
    page = write_index(runs).read_text()
    assert 'href="javascript' not in page
    assert 'href="http' not in page
