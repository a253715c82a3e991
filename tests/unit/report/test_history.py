"""Several studies of one question as a page: the effect over time, and how far days differ."""

import io
import json
import re
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
from meshtrial.report.figures.sessions import history
from meshtrial.report.pages import write_history

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


def grown(data: StudyData, factor: float) -> StudyData:
    """The same, with node-proxy's p50 multiplied."""
    mine = (pl.col("response") == "latency_p50_s") & (pl.col("treatment") == "node-proxy")
    value = pl.when(mine).then(pl.col("value") * factor).otherwise("value")
    return replace(data, table=data.table.with_columns(value.alias("value")))


def test_a_change_of_level_is_listed_with_its_study_and_drawn(tmp_path):
    days = [
        grown(later(study_data(tmp_path / str(day), Shape(seed=day)), day), 1.4 if day > 8 else 1.0)
        for day in range(1, 13)
    ]
    write_history(tmp_path / "page.html", days, between.compare(days), "p50")
    text = (tmp_path / "page.html").read_text()
    section = text.split('id="Changes-of-level"')[1].split("<h2")[0]
    assert re.findall(r"to 2\.\d+× with ambient_vs_no_mesh, 2026-\d\d-\d\d", section)
    assert "Dotted: the first study after a change of level" in text
    write_history(tmp_path / "page.html", days[:8], between.compare(days[:8]), "p50")
    assert "Dotted" not in (tmp_path / "page.html").read_text()


def test_the_command_writes_one_page_of_what_is_recorded(tmp_path, monkeypatch):
    root = tmp_path / "studies"
    for name in ("20261101T000000Z-77c58730", "20261102T000000Z-77c58730", "20261103T000000Z-77c58730"):
        shutil.copytree(SAMPLE, root / "ambient_vs_no_mesh" / name)
    # The last is a part of a study and not a study of its own.
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
