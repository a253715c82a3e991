"""The ranking on a page and in a headline, and parts that the baseline lacks."""

import pytest

from meshtrial.inference.reanalysis import reanalyse
from meshtrial.report import frames, tables, wording
from meshtrial.report.figures import answer, forest, pairs
from meshtrial.vocabulary import BETWEEN


@pytest.fixture(scope="module")
def meshes(sample):
    return sample("mesh_comparison-20261125T022942Z-a6e76e54")


@pytest.fixture(scope="module")
def declared(sample):
    return sample("feature_impact-20261124T194022Z-df1edfcf")


@pytest.fixture(scope="module")
def paired(declared):
    return reanalyse(declared, pairs=True).data


def test_the_headline_places_the_treatments(meshes, paired):
    assert tables.headline(meshes).endswith(
        "Ranked by p50 latency: places 1 istio-ambient; 2–4 istio+mtls and linkerd; 2–5 kuma+mtls; 4–5 "
        "consul+l7 (6 of 10 pairs differ significantly)."
    )
    assert "places 1 istio; 2 istio+mtls+jwt; 3 istio+mtls+observability" in tables.headline(paired)


def test_the_tables_say_who_was_shown_to_be_better(meshes):
    shown = tables.ranks(meshes)
    assert shown.html.count("<table") == 2
    assert "Ranking by p50 latency: 6 of 10 pairs differ significantly" in shown.text
    lines = [line for line in shown.text.splitlines() if line.startswith("linkerd")]
    assert [*lines[0].split()[:2], lines[0].split()[-1]] == ["linkerd", "2–4", "istio-ambient"]
    assert "kuma+mtls, consul+l7 and istio+mtls" in lines[1]


@pytest.mark.usefixtures("undrawn")
def test_pairs_stand_in_the_table_and_not_in_the_pictures(meshes, paired, declared):
    assert "All 20 pairs" in tables.verdict_table(meshes).text
    assert "All 9 pairs" in tables.verdict_table(paired).text
    for figure in (answer, forest):
        assert figure(paired).table.equals(figure(declared).table)


def test_a_study_without_pairs_says_so(declared):
    assert tables.ranks(declared).text == (
        "This study declared no contrasts between its treatments, or they have no verdicts yet."
    )
    assert "places" not in tables.headline(declared)


def test_what_the_baseline_has_no_part_of_is_described_by_treatment(meshes):
    shown = tables.described(meshes)
    assert shown.html.count("<table") == 1
    kuma = next(line for line in shown.text.splitlines() if line.startswith("kuma+mtls "))
    assert "25.3 µs/request (21.4 µs/request to 37.1 µs/request)" in kuma.replace("\u00a0", " ")
    assert "none" not in [line.split()[0] for line in shown.text.splitlines() if "MiB" in line]


def test_nothing_is_described_where_all_have_every_part(data):
    assert tables.described(data).text == ""


def test_the_matrix_of_pairs_draws_the_verdicts_between_treatments(meshes, declared):
    shown = pairs(meshes)
    rows = [row for row in meshes.verdicts if row.family == BETWEEN and row.response in meshes.plan.study.primary]
    drawn = shown.table.select("treatment", "against", "verdict on").rows()
    assert sorted(drawn) == sorted((row.treatment, row.baseline, row.scale) for row in rows)
    for row in rows:
        assert f">{wording.signed(frames.effect(row)[0])}</text>" in shown.svg
    assert pairs(declared).nothing
