"""Exports are complete, other programs' parsers read them, and the published schema describes them."""

import copy
import json
from dataclasses import replace

import jsonschema
import polars as pl
import pytest
from commandline import SAMPLE, meshtrial
from refused import refused

from meshtrial import paths
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference import read_study
from meshtrial.inference.export import FORMATS, document, export
from meshtrial.records.columns import verdict_frame
from meshtrial.records.store import StudyStore

SCHEMA = json.loads((paths.CHECKOUT / "docs" / "schema" / "export.schema.json").read_text())


@pytest.fixture(scope="module")
def data():
    return read_study(StudyStore.open(SAMPLE))


def test_the_json_is_what_the_schema_says(data):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    whole = document(data)
    jsonschema.validate(whole, SCHEMA)
    assert len(whole["verdicts"]) == len(data.verdicts)
    assert len(whole["runs"]) == len(data.runs)
    p50 = next(run for run in whole["runs"] if run["run_id"] == data.runs[0].run_id)["responses"]["latency_p50_s"]
    assert p50 == data.runs[0].responses["latency_p50_s"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["verdicts"][0].pop("ratio"),
        lambda d: d["verdicts"][0].update(verdict="no difference"),
        lambda d: d["verdicts"][0].update(more=1),
        lambda d: d["runs"][0].update(included="yes"),
        lambda d: d["study"].update(plan_sha256="x"),
        lambda d: d.update(schema="meshtrial.export/1"),
    ],
)
def test_the_schema_refuses_what_is_not_an_export(data, damage):
    broken = copy.deepcopy(document(data))
    damage(broken)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_tables_are_read_back_as_they_were(data, tmp_path):
    written = {path.name for path in export(data, tmp_path / "new" / "folder")}
    assert written == {"verdicts.csv", "runs.csv", "verdicts.parquet", "runs.parquet", "study.json"}
    folder = tmp_path / "new" / "folder"
    assert pl.read_parquet(folder / "runs.parquet").equals(data.table)
    assert pl.read_parquet(folder / "verdicts.parquet").equals(verdict_frame(data.verdicts))
    rows = pl.read_csv(folder / "verdicts.csv", infer_schema_length=None)
    assert rows["ratio"].to_list() == verdict_frame(data.verdicts)["ratio"].to_list()
    assert [path.name for path in export(data, tmp_path / "one", ("json",))] == ["study.json"]


def test_what_cannot_be_exported_is_one_line(data, tmp_path):
    with refused(UsageError):
        export(data, tmp_path, ("xml",))
    with refused(RecordError, names=[data.path, "report"]):
        export(replace(data, verdicts=()), tmp_path)
    (tmp_path / "file").write_text("")
    with refused(RecordError, names=[tmp_path / "file" / "folder"]):
        export(data, tmp_path / "file" / "folder")


def test_the_command_takes_a_packed_study_and_names_every_format(tmp_path, capsys):
    packed = next((paths.CHECKOUT / "data" / "sample").glob("ambient*.tar.xz"))
    code, out, err = meshtrial("export", packed, "--out", tmp_path / "x")
    assert (code, err, out.count(" kB\n")) == (0, "", 5)
    assert meshtrial("export", "--help")[0] == 0
    assert ",".join(FORMATS) in " ".join(capsys.readouterr().out.split())
