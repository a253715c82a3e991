"""One study in two parts, as on two machines: nothing is run twice, and together they are the study."""

from pathlib import Path

import pytest
from commandline import meshtrial
from local.studies import SHORT, only, short

from meshtrial.errors import Exit
from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore
from meshtrial.run.trial import Trial


def test_two_parts_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given = SHORT | {"blocks": 3, "treatments": "none", "seed": 4711}
    # One part by the command line, the other from Python; a repeated command finds its part complete.
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "one"))
    code, out, err = meshtrial("run", "ambient_vs_no_mesh", *short(**given, part="1/2"), "--resume")
    assert code in (0, Exit.EXCLUDED), err
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "two"))
    Trial("ambient_vs_no_mesh", given | {"part": "2/2"}).run(lambda _: None)
    code, out, err = meshtrial("run", "ambient_vs_no_mesh", *short(**given, part="2/2"), "--resume")
    assert "nothing to measure" in out, err
    folders = [only(tmp_path / machine, "ambient_vs_no_mesh/*") for machine in ("one", "two")]
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
    assert code in (0, Exit.EXCLUDED), err
    page = next((tmp_path / "reports").glob("*.html"))
    pages = "".join(path.read_text() for path in page.parent.glob("ambient*.html"))
    assert "Where the blocks were run" in pages
