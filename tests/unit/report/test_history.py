"""Several studies of one question as a page: the effect over time, and what the days are worth."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml
from unit.report.synth import Shape, study_data

from meshtrial import cli
from meshtrial.inference import between
from meshtrial.records import parts
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part
from meshtrial.records.store import StudyStore
from meshtrial.report.figures.history import history

DAY_S = 86400.0
SAMPLE = next((Path(__file__).resolve().parents[3] / "data" / "sample" / "ambient_vs_no_mesh").iterdir())


def later(data: StudyData, days: int) -> StudyData:
    return replace(data, runs=tuple(replace(r, start_unix_s=r.start_unix_s + days * DAY_S) for r in data.runs))


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> list[StudyData]:
    return [later(study_data(tmp_path_factory.mktemp("day"), Shape(seed=day)), day) for day in (1, 2, 5)]


def test_every_study_is_a_point_with_its_interval(studies):
    drawn = history(studies, "p50")
    assert drawn.table.filter(drawn.table["treatment"] == "node-proxy").height == 3
    assert drawn.table["began"].n_unique() == 3
    assert "node-proxy at" in drawn.alt
    assert "3 studies" in drawn.alt
    assert "<figure" in drawn._repr_html_()


def test_studies_that_ask_something_else_are_left_out(tmp_path, studies):
    other = later(study_data(tmp_path / "other", Shape(treatments=("none", "none-aa", "node-proxy"))), 0)
    same, others = between.of_one_question([*studies, other])
    assert len(same) == 3
    assert others == [other]
    assert same == sorted(studies, key=lambda data: data.runs[0].start_unix_s)


def test_the_command_writes_one_page_of_what_is_recorded(tmp_path, monkeypatch):
    root = tmp_path / "studies"
    for name in ("20261101T000000Z-77c58730", "20261102T000000Z-77c58730", "20261103T000000Z-77c58730"):
        shutil.copytree(SAMPLE, root / "ambient_vs_no_mesh" / name)
    # The last is a part of a study, and no study of its own.
    file = root / "ambient_vs_no_mesh" / name / "environment.json"
    part = parts.described(Part(1, 2), StudyStore.open(file.parent).plan)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"part": part}))
    monkeypatch.setenv("MESHTRIAL_DATA", str(root))
    out, err = io.StringIO(), io.StringIO()
    target, table = tmp_path / "page.html", tmp_path / "series" / "days.csv"
    given = ["history", "ambient_vs_no_mesh", "--out", str(target), "--csv", str(table)]
    assert cli.main(given, out, err) == 0, err.getvalue()
    assert "2 studies of ambient_vs_no_mesh" in out.getvalue()
    assert "left out: 20261103T000000Z-77c58730 is part 1/2 of a study" in out.getvalue()
    text = target.read_text()
    assert "Study against study" in text
    assert "studies on; there are 2" in text
    series = pl.read_csv(table)
    tests = yaml.safe_load((tmp_path / "series" / "days.otava.yaml").read_text())["tests"]
    (listed,) = tests.values()
    assert listed["file"] == str(table)
    columns = [metric["column"] for metric in listed["metrics"].values()]
    assert series.columns == ["time", "study", "plan", *columns]
    ratio = next(
        name for name in columns if name.startswith("latency_p50_s node-proxy against none at ") and "ratio" in name
    )
    assert series[ratio][0] == series[ratio][1] > 1
    assert ratio.replace(", ratio", ", difference") in columns
    assert "http://" not in text.replace("http://www.w3.org", "")
    err = io.StringIO()
    assert cli.main(["history", "scale_out"], io.StringIO(), err) == 2
    assert "scale_out: no recorded study" in err.getvalue()
