"""One study in two parts, as two machines would run it: nothing is run twice, and together they are the study."""

from __future__ import annotations

from pathlib import Path

import pytest
from local.test_study import meshtrial, only, short

from meshtrial.commands.run import INVALID_RUNS
from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore

pytestmark = pytest.mark.beside


def test_two_parts_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folders = []
    for part in ("1/2", "2/2"):
        monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / part.replace("/", "-of-")))
        given = short(blocks=3, treatments="none", part=part)
        code, out, err = meshtrial("run", "ambient_vs_no_mesh", *given, "--resume")
        assert code in (0, INVALID_RUNS), err
        folders.append(only(tmp_path / part.replace("/", "-of-"), "ambient_vs_no_mesh/*"))
    code, out, err = meshtrial("run", "ambient_vs_no_mesh", *given, "--resume")
    assert "nothing is run" in out, err
    assert [StudyStore.open(folder).blocks for folder in folders] == [(1, 2), (3,)]
    assert [{run.repetition for run in read_study(StudyStore.open(f)).runs} for f in folders] == [{1, 2}, {3}]
    merged = tmp_path / "merged"
    code, out, err = meshtrial("merge", *map(str, folders), "--out", str(merged))
    assert code == 0, err
    assert "whole  6/6 runs" in out
    data = read_study(StudyStore.open(merged))
    assert "provisional" not in {row.verdict for row in data.verdicts}
    assert meshtrial("verify", str(merged))[0] == 0
    code, out, err = meshtrial("report", str(merged))
    assert code in (0, INVALID_RUNS), err
    page = next((tmp_path / "reports").glob("*.html"))
    pages = "".join(path.read_text() for path in page.parent.glob("ambient*.html"))
    assert "Where the blocks were run" in pages
