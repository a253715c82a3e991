import dataclasses
import json

import pytest

from meshtrial.site.pages import address
from meshtrial.site.published import SUMMARY, all_published, described, write_summary


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
