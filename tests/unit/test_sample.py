"""The recorded studies that come with the checkout: intact, analysed as they were, and quoted as they are."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from commandline import meshtrial
from refused import refused

from meshtrial import paths
from meshtrial.errors import RecordError
from meshtrial.inference import read_study
from meshtrial.records import packed
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import StudyStore
from meshtrial.report import frames, wording
from meshtrial.report.tables import headline

FOLDER = paths.CHECKOUT / "data" / "sample"
SAMPLES = sorted(path.parent for path in FOLDER.glob("*/*/plan.json"))
PACKED = sorted(FOLDER.glob("*.zip"))
README = (paths.CHECKOUT / "README.md").read_text()
# What the README's table says of a study with real meshes, in this order.
QUOTED = ("latency_p50_s", "path_cpu_s_per_request")


def test_there_is_one_that_anybody_can_look_into():
    assert len(SAMPLES) == 1


@pytest.mark.parametrize("sample", [*SAMPLES, *PACKED], ids=lambda path: path.name)
def test_it_is_intact_and_analysed_as_it_was(sample):
    code, out, err = meshtrial("verify", sample)
    assert code == 0, err
    assert "intact" in out


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_it_finds_the_node_proxy_slower_and_the_twin_not_different(sample):
    rows = [row for row in read_study(StudyStore.open(sample)).verdicts if row.response == "latency_p50_s"]
    assert {row.treatment: row.verdict in ("slower", "faster") for row in rows} == {
        "none-aa": False,
        "node-proxy": True,
    }


def test_verdicts_of_another_version_are_refused_with_what_to_do(tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(SAMPLES[0], folder)
    path = folder / "verdicts.json"
    path.write_text(path.read_text().replace('"p_adjusted"', '"p_holm"'))
    with refused(RecordError, names=[path, "report", folder]):
        read_study(StudyStore.open(folder))


def on_a_cluster(path: Path) -> bool:
    with zipfile.ZipFile(path) as opened:
        (plan,) = [name for name in opened.namelist() if name.endswith("/plan.json")]
        return json.loads(opened.read(plan))["study"]["backend"] == "kubernetes"


def plain(text: str) -> str:
    return text.replace(wording.NBSP, " ").replace("\u202f", " ")


def quoted(data: StudyData) -> list[str]:
    """Lines of the README's table: a treatment, and for every load and response what was found."""
    lines = []
    for treatment in data.plan.study.treatments:
        cells = []
        for load in frames.loads(data):
            for row in data.verdicts:
                if (row.load, row.treatment) == (load, treatment.name) and row.response in QUOTED:
                    size = "" if row.ratio is None else f"{wording.change(row.ratio, row.ci_high)}, "
                    cells.append(f"{size}{wording.verdict_text(row)}")
        if cells:
            lines.append(plain(f"| `{treatment.name}` | {' | '.join(cells)} |"))
    return lines


@pytest.mark.parametrize("sample", [p for p in PACKED if p.name.startswith("mesh_comparison")], ids=lambda p: p.name)
def test_the_readme_quotes_it_as_it_is(sample: Path, tmp_path: Path):
    data = read_study(StudyStore.open(packed.unpack(sample, tmp_path)))
    assert data.verdicts
    for line in quoted(data):
        assert line in README, f"README.md lacks: {line}"
    builds = {text for run in data.runs for name, text in run.versions.items() if name.startswith("mesh ")}
    assert all("own build" in build for build in builds)


@pytest.mark.parametrize(
    "sample", [p for p in PACKED if p.name.startswith("feature_impact") and on_a_cluster(p)], ids=lambda p: p.name
)
def test_the_readme_quotes_each_feature_as_it_is(sample: Path, tmp_path: Path):
    data = read_study(StudyStore.open(packed.unpack(sample, tmp_path)))
    baseline, found = data.plan.study.baseline.name, []
    for contrast in data.plan.study.all_contrasts():
        if contrast.baseline != baseline or contrast.treatment in ("istio", "kuma"):
            pair = (contrast.treatment, contrast.baseline)
            rows = [row for row in data.verdicts if (row.treatment, row.baseline) == pair and row.response in QUOTED]
            cells = [f"{wording.change(row.ratio, row.ci_high)}, {wording.verdict_text(row)}" for row in rows]
            found.append(plain(f"| `{pair[0]}` | `{pair[1]}` | {' | '.join(cells)} |"))
    assert len(found) == 5
    for line in found:
        assert line in README, f"README.md lacks: {line}"


@pytest.mark.parametrize("sample", PACKED, ids=lambda path: path.name)
def test_a_packed_one_says_its_verdict_without_the_requests(sample: Path, tmp_path: Path):
    data = read_study(StudyStore.open(packed.unpack(sample, tmp_path)))
    assert headline(data)
    assert not [p for run in data.runs if run.valid for p in run.proofs if not p.passed]
    assert {"requests", "logs"} <= set(packed.left_out(data.path))


def test_the_samples_are_small():
    assert sum(path.stat().st_size for path in PACKED) < 4_000_000
