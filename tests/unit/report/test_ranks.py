"""Which is better than which, as a page and a headline say it; and what the baseline has no part of."""

from __future__ import annotations

import pytest

from meshtrial.inference import read_study
from meshtrial.inference.reanalysis import reanalyse
from meshtrial.records import listing
from meshtrial.records.store import StudyStore
from meshtrial.report import tables
from meshtrial.report.figures import answer, forest


@pytest.fixture(scope="module")
def declared():
    return read_study(StudyStore.open(next(listing.SAMPLE.glob("mesh_comparison-*.zip"))))


@pytest.fixture(scope="module")
def paired(declared):
    return reanalyse(declared, pairs=True).data


def test_the_headline_places_the_treatments_at_each_load(paired):
    low, high = tables.headlines(paired)
    assert low.endswith(
        "Between them, by p50 latency: places 1 istio-ambient; 2–6 istio+mtls, istio-ambient+waypoint, linkerd, kuma "
        "and kuma+mtls (5 of 15 pairs shown to differ)."
    )
    assert "places 1 istio-ambient; 2–5 istio-ambient+waypoint and linkerd; 2–6 kuma; 3–6 istio+mtls and" in high


def test_the_tables_say_who_was_shown_to_be_better(paired):
    shown = tables.ranks(paired)
    assert shown.html.count("<table") == 4
    assert "Which is better than which by p50 latency at 500rps-10c: 7 of 15 pairs shown to differ" in shown.text
    (line,) = [
        line for line in shown.text.splitlines() if line.startswith("kuma+mtls") and "3–6" in line and "ms" in line
    ]
    assert line.endswith("istio-ambient and istio-ambient+waypoint")


def test_pairs_stand_in_the_table_and_not_in_the_pictures(paired, declared):
    assert "All 60 pairs" in tables.verdict_table(paired).text
    for figure in (answer, forest):
        assert figure(paired).table.equals(figure(declared).table)


def test_a_study_without_pairs_says_so(declared):
    assert tables.ranks(declared).text == (
        "This study declared no contrasts between its treatments, or has no verdicts of them yet."
    )
    assert "places" not in tables.headline(declared)


def test_what_the_baseline_has_no_part_of_is_described_by_treatment(declared):
    shown = tables.described(declared)
    assert shown.html.count("<table") == 2
    kuma = next(line for line in shown.text.splitlines() if line.startswith("kuma "))
    assert "57.5 µs/request (55.0 µs/request to 77.8 µs/request)" in kuma.replace("\u00a0", " ")
    assert "none" not in [line.split()[0] for line in shown.text.splitlines() if "MiB" in line]


def test_nothing_is_described_where_all_have_every_part(data):
    assert tables.described(data).text == ""
