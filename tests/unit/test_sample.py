"""The quoted recorded studies match the checkout; the goldens verify each of them."""

import shutil
from collections.abc import Callable

import pytest
from pages.samples import CHANGED, DELAYED, FEATURES, MESHES, OBEYED
from refused import refused

from meshtrial import paths
from meshtrial.errors import RecordError
from meshtrial.inference import read_study
from meshtrial.records import listing, packed
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.records.store import StudyStore
from meshtrial.report.tables import headline
from meshtrial.vocabulary import BELOW_MARGIN, MATERIAL

FOLDER = paths.CHECKOUT / "data" / "sample"
SAMPLES = sorted(path.parent for path in FOLDER.glob("*/*/plan.json"))
PACKED = {name: path for name, path in listing.samples().items() if path.is_file()}


def test_there_is_one_that_anybody_can_look_into():
    assert len(SAMPLES) == 1


def test_it_finds_the_node_proxy_slower_and_the_twin_not_different():
    (study,) = SAMPLES
    rows = [row for row in read_study(StudyStore.open(study)).verdicts if row.response == "latency_p50_s"]
    assert {row.treatment: row.verdict in ("slower", "faster") for row in rows} == {
        "none-aa": False,
        "node-proxy": True,
    }


def test_every_difference_follows_the_rule_that_legends_and_pages_state(sample: Callable[[str], StudyData]):
    """By tests, as `QUALIFIERS` defines: by the interval, some rows would have another qualifier."""
    otherwise: set[str] = set()
    for data in (*(read_study(StudyStore.open(study)) for study in SAMPLES), *map(sample, PACKED)):
        alpha = data.plan.study.alpha
        for row in data.verdicts:
            if row.verdict.different:
                larger, smaller = row.p_material_adjusted, row.p_equivalence_adjusted
                rule = MATERIAL if larger and larger <= alpha else BELOW_MARGIN if smaller and smaller <= alpha else ""
                assert (row.p_adjusted <= alpha, row.qualifier) == (True, rule), (data.path, row.key)
                otherwise |= {rule} if (rule == MATERIAL) != lies_beyond(row) else set()
    assert otherwise == {MATERIAL, ""}


def lies_beyond(row: VerdictRow) -> bool:
    """Whether the interval that carries the verdict lies beyond the margin as a whole."""
    if row.margin is None:
        return False
    low, high = (row.difference_low, row.difference_high) if row.by_difference else (row.ci_low, row.ci_high)
    least, most = (-row.margin, row.margin) if row.by_difference else (1 / (1 + row.margin), 1 + row.margin)
    return (low is not None and low > most) or (high is not None and high < least)


def test_verdicts_of_another_version_are_refused_with_what_to_do(tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(SAMPLES[0], folder)
    path = folder / "verdicts.json"
    path.write_text(path.read_text().replace('"p_adjusted"', '"p_holm"'))
    with refused(RecordError, names=[path, "report", folder]):
        read_study(StudyStore.open(folder))


@pytest.mark.parametrize("name", [name for name in PACKED if name.startswith("mesh_comparison")])
def test_its_meshes_are_own_builds_as_the_pages_say(name: str, sample: Callable[[str], StudyData]):
    study = sample(name)
    builds = {text for run in study.runs for name, text in run.versions.items() if name.startswith("mesh ")}
    assert bool(builds) == (study.plan.study.backend == "kubernetes")
    assert all("own build" in build for build in builds)


@pytest.mark.parametrize("name", [MESHES, *FEATURES.values(), DELAYED, CHANGED, OBEYED])
def test_all_runs_were_valid_and_as_many_as_the_page_of_samples_says(name: str, sample: Callable[[str], StudyData]):
    data = sample(name)
    assert all(run.valid for run in data.runs)
    said = f"{data.plan.study.blocks} blocks, {len(data.runs)} runs"
    page = (paths.CHECKOUT / "data" / "README.md").read_text()
    assert said in page


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_one_says_its_verdict_without_the_requests(name: str, sample: Callable[[str], StudyData]):
    data = sample(name)
    assert headline(data)
    assert not [p for run in data.runs if run.valid for p in run.proofs if not p.passed]
    assert {"requests", "logs"} <= set(packed.left_out(data.path))


def test_the_samples_are_small():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 8_000_000  # every clone has them
