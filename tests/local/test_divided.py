"""One study in two parts, as on two machines: nothing is run twice, and together they are the study."""

from pathlib import Path

import pytest
from commandline import meshtrial
from local.studies import SHORT, only, short

from meshtrial.commands.run import begun
from meshtrial.errors import Exit
from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore
from meshtrial.run.trial import Trial


def test_two_parts_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given = SHORT | {"blocks": 3, "treatments": "none", "seed": 4711}
    # One part by the command line, the other from Python; `--resume` finds a part that is complete.
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "one"))
    code, out, err = meshtrial("run", "ambient_vs_no_mesh", *short(**given, part="1/2"), "--resume")
    assert code in (0, Exit.EXCLUDED), err
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "two"))
    part = given | {"part": "2/2"}
    Trial("ambient_vs_no_mesh", part).run(lambda _: None)
    lines: list[str] = []
    Trial("ambient_vs_no_mesh", part | begun("ambient_vs_no_mesh", part)).run(lines.append)
    assert any("nothing to measure" in line for line in lines), lines
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
