"""Places from pairs: significant pairs limit them, others leave them open, and inapplicable pairs do not exist."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from unit.inference.recorded import planned, rows_of, study_of

from meshtrial.design.plan import PlannedRun
from meshtrial.inference.ranking import Ranking, rankings
from meshtrial.inference.rows import described
from meshtrial.records.dataset import StudyData
from meshtrial.vocabulary import BETWEEN, VerdictLabel

MESHES = {"istio-ambient": 1.0, "linkerd": 1.5, "istio+mtls": 1.51, "kuma": 2.2}
# istio-ambient was better than all others, kuma worse than all; the two between were not told apart.
PLACES = {"istio-ambient": "1", "linkerd": "2–3", "istio+mtls": "2–3", "kuma": "4"}


def study(blocks: int = 6, **given: object) -> StudyData:
    asked = {"backend": "kubernetes", "treatments": ",".join(("none", *MESHES)), "rates": "200", "capacity": False}
    plan = planned("mesh_comparison", **asked | {"blocks": blocks} | given)
    rng = np.random.default_rng(4)
    blocks_own = rng.normal(0, 0.05, blocks)

    def responses(run: PlannedRun) -> dict[str, float]:
        size = MESHES.get(run.treatment, 0.3) * float(np.exp(blocks_own[run.repetition - 1] + rng.normal(0, 0.05)))
        found = {"latency_p50_s": size / 1e3, "path_cpu_s_per_request": size / 1e4}
        return found | ({"control_plane_cpu_cores": size / 100} if run.treatment in MESHES else {})

    data = study_of(plan, responses)
    return replace(data, verdicts=tuple(rows_of(data)))


@pytest.fixture(scope="module")
def data() -> StudyData:
    return study()


def test_all_pairs_of_meshes_are_a_family_of_their_own(data):
    families = data.plan.study.families()
    assert [(c.treatment, c.baseline) for c in families[""]] == [(mesh, "none") for mesh in MESHES]
    pairs = [(c.treatment, c.baseline) for c in families[BETWEEN]]
    assert len(pairs) == 6
    assert {frozenset(pair) for pair in pairs} == {frozenset((a, b)) for a in MESHES for b in MESHES if a != b}
    assert data.plan.study.correction == "max-t"


def test_six_blocks_place_four_meshes(data):
    by_latency = rankings(data)[0]
    assert isinstance(by_latency, Ranking)
    assert {place.treatment: place.places for place in by_latency.places} == PLACES
    assert (by_latency.n_significant, by_latency.pairs) == (5, 6)
    first, *_, last = by_latency.places
    assert (first.treatment, set(first.better_than), first.worse_than) == (
        "istio-ambient",
        {*MESHES} - {"istio-ambient"},
        (),
    )
    assert (last.treatment, last.better_than, set(last.worse_than)) == ("kuma", (), {*MESHES} - {"kuma"})
    assert [one.response.name for one in rankings(data)] == ["latency_p50_s", "path_cpu_s_per_request"]


def test_every_order_that_the_pairs_allow_lies_within_the_places(data):
    # The true order is one of the possible ones.
    truth = sorted(MESHES, key=lambda mesh: MESHES[mesh])
    for place in rankings(data)[0].places:
        assert place.best <= truth.index(place.treatment) + 1 <= place.worst


def test_of_a_level_more_is_better(data):
    # For capacity the same verdicts reverse the order.
    as_capacity = {VerdictLabel.SLOWER: VerdictLabel.HIGHER, VerdictLabel.FASTER: VerdictLabel.LOWER}
    rows = [
        replace(row, response="capacity_rps", verdict=as_capacity.get(row.verdict, row.verdict))
        for row in data.verdicts
        if row.response == "latency_p50_s"
    ]
    plan = replace(data.plan, study=replace(data.plan.study, primary=("capacity_rps",)))
    (found,) = rankings(replace(data, plan=plan, verdicts=tuple(rows)))
    assert {place.treatment: place.places for place in found.places} == {
        "istio-ambient": "4",
        "linkerd": "2–3",
        "istio+mtls": "2–3",
        "kuma": "1",
    }


def test_an_unfinished_study_and_one_without_pairs_rank_nothing(data):
    provisional = tuple(replace(row, verdict=VerdictLabel.PROVISIONAL) for row in data.verdicts)
    assert rankings(replace(data, verdicts=provisional)) == ()
    assert rankings(replace(data, verdicts=tuple(row for row in data.verdicts if row.family != BETWEEN))) == ()


def test_where_nothing_could_be_compared_there_are_no_places(data):
    stopped = tuple(replace(row, verdict=VerdictLabel.INVALID) for row in data.verdicts)
    assert rankings(replace(data, verdicts=stopped)) == ()


def test_five_blocks_leave_every_place_open():
    (found, _) = rankings(study(blocks=5))
    assert {place.places for place in found.places} == {"1–4"}
    assert found.n_significant == 0


def test_what_no_mesh_lacks_is_compared_between_meshes_and_makes_no_row_against_none(data):
    rows = [row for row in data.verdicts if row.response == "control_plane_cpu_cores"]
    assert {row.family for row in rows} == {BETWEEN}
    assert len(rows) == 6
    assert VerdictLabel.INVALID not in {row.verdict for row in rows}
    assert any(row.verdict.different for row in rows)


def test_it_is_described_by_mesh_with_an_interval_of_its_median(data):
    found = described(data)
    assert [one.treatment for one in found] == [*MESHES]
    assert {one.response.name for one in found} == {"control_plane_cpu_cores"}
    values = data.table.filter(response="control_plane_cpu_cores", treatment="kuma")["value"].sort()
    kuma = found[-1]
    # Six values: from the smallest to the largest, 1 - 2/64.
    assert (kuma.low, kuma.high, kuma.runs) == (values[0], values[-1], 6)
    assert kuma.confidence == pytest.approx(1 - 2 / 64)
    assert kuma.median == pytest.approx(values.median())


def test_a_mesh_that_was_not_measured_is_invalid_and_not_left_out(data):
    # Only no mesh lacks a control plane by construction.
    name = "control_plane_cpu_cores"
    table = data.table.filter((pl.col("response") != name) | (pl.col("treatment") != "kuma"))
    rows = rows_of(replace(data, table=table))
    kuma = [row for row in rows if row.response == name and "kuma" in (row.treatment, row.baseline)]
    assert {row.verdict for row in kuma} == {VerdictLabel.INVALID}
