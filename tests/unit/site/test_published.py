import dataclasses
import json

import pytest

from meshtrial.site.published import SUMMARY, Published, all_published
from meshtrial.site.study import address


@pytest.fixture
def root(data, tmp_path):
    folder = tmp_path / address(data)
    folder.mkdir(parents=True)
    Published.of(data, address(data)).write(folder)
    return tmp_path


def test_what_was_written_is_read_back_with_its_place(data, root):
    (found,), broken = all_published(root)
    assert broken == []
    assert found.address == address(data)
    assert found.study.treatments == ("none", "none-aa", "node-proxy")
    assert found.sentence.startswith("Against none, at 300 requests a second over 4 connections: node-proxy is slower")
    assert found.title == (
        "The ambient architecture against no mesh: node-proxy, on one machine (21 November 2026, 21:17 UTC)"
    )
    assert (found.day, found.blocks, found.blocks_planned) == ("21 November 2026", 8, 8)
    assert len(found.verdicts) == len(data.verdicts)


def test_a_file_cannot_send_the_reader_elsewhere(data, root):
    path = root / address(data) / SUMMARY
    path.write_text(json.dumps(json.loads(path.read_text()) | {"address": "https://elsewhere/"}))
    assert [one.address for one in all_published(root)[0]] == [address(data)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": "meshtrial.site/9"}, "not of the form"),
        ({"recorded": "yesterday"}, "not whole"),
        ({"recorded": "2026-11-21T21:17:26"}, "not whole"),
        ({"recorded": "2026-11-21T21:17:26+02:00"}, "not whole"),
        ({"headlines": ["a"]}, "not whole"),
        ({"headlines": []}, "not whole"),
        ({"headlines": [[]]}, "not whole"),
        ({"study": {"name": "x"}}, "not whole"),
        ({"verdicts": {}}, "not whole"),
        ({"more": 1}, "not whole"),
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
    heading = Published.of(other, address(other)).heading
    assert heading == (
        "The ambient architecture against no mesh: istio-ambient with details and details-nodelay, on a cluster"
    )
    assert Published.of(data, address(data)).heading.endswith("no mesh: node-proxy, on one machine")


def test_what_settles_more_counts_more_and_a_mesh_more_than_a_stand_in(data, other):
    mesh, machine = Published.of(other, address(other)), Published.of(data, address(data))
    assert mesh.weight > machine.weight
    assert machine.settled == sum(
        row.verdict.conclusive for row in data.verdicts if not row.twin and row.response in data.plan.study.primary
    )
    silent = dataclasses.replace(machine, verdicts=())
    assert (silent.settled, silent.weight < machine.weight < mesh.weight) == (0, True)
