"""The first screen: six checks and limits, their deciding numbers, every warning once, and the picture."""

from collections import Counter
from dataclasses import replace

import polars as pl
import pytest
from refused import as_reviewed, missing
from unit.report.synth import Shape, asked, changed, row_of

import meshtrial as mt
from meshtrial.records.listing import samples
from meshtrial.records.schema import GateResult
from meshtrial.report import figures, frames, tables, wording
from meshtrial.report.checks import KIND_OF, KINDS, Check, checks, limits, tally
from meshtrial.report.tables.headline import first_screen, headline
from meshtrial.vocabulary import BETWEEN, Warning

PRIMARY = 6  # contrasts of two treatments and three primary responses


def check(data, kind) -> Check:
    (found,) = [one for one in checks(data) if one.kind == kind]
    return found


def warned(data, code, wanted=lambda row: not row.twin):
    return changed(data, wanted, warnings=(Warning(code, f"{code} was seen"),))


def with_responses(data, **named):
    runs = tuple(replace(run, responses={**run.responses, **named}) for run in data.runs)
    return replace(data, runs=runs)


def test_a_clean_study_has_six_fine_checks(variants):
    found = checks(with_responses(variants["usual"], foreign_load=0.031, machine_stolen=0.004))
    assert [one.kind for one in found] == [kind for kind in KINDS if kind != "limits"]
    assert {one.kind: one.state for one in found} == dict.fromkeys([one.kind for one in found], "fine")
    assert not any(one.advice for one in found)
    assert all(one.value and one.denominator for one in found)
    assert tally(found) == "all 6 checks are fine"


@pytest.fixture(scope="module", params=samples().values(), ids=samples().keys())
def recorded(request):
    return mt.open_study(request.param).data


def test_the_drift_is_that_of_the_warnings(recorded):
    found = check(recorded, "drift")
    size = wording.to_ascii(found.value).replace(" ", "")
    assert any(f"drift by {size} over" in line for line in found.details) == (found.value not in ("", "0"))


def test_no_warning_of_a_recorded_study_is_lost_or_said_twice(recorded):
    data = recorded
    held = Counter(line for one in (*checks(data), limits(data)) for line in one.details)
    rows = frames.contrasts(data, primary=True, between=False).rows
    assert [line for line in wording.warnings(rows) if held[line] != 1] == []
    for one in (*checks(data), limits(data)):
        of_others = [code for code, kind in KIND_OF.items() if kind != one.kind]
        assert not set(one.details) & set(wording.warnings(rows, of_others))
        assert bool(one.advice) == (one.state != "fine") or one.kind == "limits" or one.state == "unknown"


def test_a_warning_that_no_check_knows_stands_with_the_limits(data):
    lines = [line for line in limits(warned(data, "never-heard-of")).details if "never-heard-of was seen" in line]
    assert [line.partition(" latency")[0] for line in lines[:2]] == ["p50", "p99"]


def test_the_twin_fails_where_it_is_called_different_and_gives_that_effect(data):
    called = changed(data, lambda row: row.twin and row.response == "latency_p50_s", verdict="slower", qualifier="")
    found = check(called, "twin")
    row = next(row for row in called.verdicts if row.twin and row.response == "latency_p50_s")
    assert (found.state, found.value) == ("problem", wording.effect(row))
    as_reviewed(found.sentence)
    assert "none-aa" in found.details[0]


@pytest.mark.parametrize("word", ["unstable", "dependent", "invalid"])
def test_a_twin_of_which_nothing_was_tested_tells_nothing(data, word):
    one = check(changed(data, lambda row: row.twin and row.response == "latency_p50_s", verdict=word), "twin")
    assert one.state == "attention"
    assert missing(one.sentence, ["inconclusive", "equivalent", 1, 3]) == []
    assert any(f"is {word} at p50" in line for line in one.details)
    every = check(changed(data, lambda row: row.twin, verdict=word, qualifier=""), "twin")
    assert every.state == "unknown"
    assert every.sentence == word


def test_a_twin_with_too_few_blocks_to_be_called_different_does_not_test_the_noise(data):
    few = warned(
        changed(data, lambda row: row.twin, verdict="inconclusive"), "below-floor", wanted=lambda row: row.twin
    )
    found = check(few, "twin")
    assert (found.state, found.sentence) == ("unknown", "inconclusive")
    row = next(row for row in few.verdicts if row.twin and row.response == "latency_p50_s")
    assert wording.effect_interval(row) in found.details[0]


def test_a_twin_that_differs_by_more_than_the_margin_is_doubtful_though_nothing_was_shown(data):
    row = next(row for row in data.verdicts if row.twin and row.response == "latency_p50_s")
    loud = changed(data, lambda one: one is row, ratio=1 / (1 + row.margin) ** 2, verdict="inconclusive")
    assert check(loud, "twin").state == "attention"
    assert check(loud, "twin").denominator.startswith("at p50")


def test_without_a_twin_or_a_verdict_the_noise_is_unknown(variants):
    assert check(variants["no twin"], "twin").state == "unknown"
    assert check(variants["no verdicts"], "twin").state == "unknown"
    assert check(variants["no verdicts"], "power").state == "unknown"


@pytest.mark.parametrize(
    ("variant", "state", "value", "sentence"),
    [
        ("usual", "fine", "40", ""),
        ("invalid", "problem", "24", "node-proxy is invalid; 2 of 10 blocks excluded"),
        ("saturated", "attention", "35", "sidecar+mtls missed the rate"),
    ],
)
def test_runs_that_counted_are_counted_of_those_planned(variants, variant, state, value, sentence):
    found = check(variants[variant], "runs")
    assert (found.state, found.value, found.denominator) == (state, value, "of 40 planned runs")
    assert found.sentence == sentence


def test_an_excluded_block_is_doubtful_and_named_with_its_reason(synth, tmp_path):
    found = check(synth.study_data(tmp_path, Shape(failed_blocks=(3,), requests=300)), "runs")
    assert (found.state, found.value, found.sentence) == ("attention", "36", "1 of 10 blocks excluded")
    (why,) = [line for line in found.details if line.startswith("Block 3 is excluded")]
    assert "sidecar+mtls: check late: 11 % of sends were late" in why


def test_what_was_excluded_is_named_with_every_reason_and_how_often(variants):
    said = "\n".join(check(variants["invalid"], "runs").details)
    for text in (
        "Block 3 is excluded for every treatment. sidecar+mtls: check late: 11 % of sends were late",
        "Block 7 is excluded",
        "node-proxy is excluded entirely: 10 of 10 runs failed.",
        "check plaintext refused (before): expected refused, saw HTTP 200 (10 runs)",
    ):
        assert text in said


def test_an_unfinished_study_says_what_is_missing(data):
    half = replace(data, runs=data.runs[:12], table=data.table.filter(pl.col("sequence") < 12), verdicts=())
    found = check(half, "runs")
    assert (found.state, found.value) == ("attention", "12")
    assert "12 of 40 planned runs were made; 28 are missing." in found.details


def test_contrasts_in_families_of_their_own_are_judged_like_others(data):
    named = changed(data, lambda row: True, family="system-1")
    assert headline(named) == headline(data)
    assert checks(named) == checks(data)
    pairs = changed(data, lambda row: not row.twin, family=BETWEEN)
    assert {row.twin for row in frames.contrasts(pairs, between=False).rows} == {True}


def test_treatments_that_are_looked_at_alone_are_no_unfinished_study(data):
    part = mt.api.study.RecordedStudy(data).only(treatments=["node-proxy"]).data
    found = check(part, "runs")
    assert (found.state, found.value, found.denominator) == ("fine", "30", "of 30 planned runs")
    assert check(part, "drift").state == "fine"


def test_failures_are_counted_of_all_attempts_and_told_apart_by_whose_they_are(variants):
    data = variants["invalid"]
    attempts, failed = len(data.runs), [run for run in data.runs if not run.valid]
    said = check(data, "runs").details
    assert f"{len(failed)} of {attempts} attempts failed: 0 failed a check of the machine" in str(said)
    assert any(line.startswith("node-proxy accounts for 20 of the 24 failures") for line in said)
    of_machine = GateResult("foreign load", 0.2, 0.1, passed=False, message="20 % of the machine")
    runs = tuple(run if run.valid else replace(run, gates=(of_machine,), proofs=()) for run in data.runs)
    other = replace(data, runs=runs)
    assert "24 failed a check of the machine" in str(check(other, "runs").details)
    assert "node-proxy accounts for" not in str(check(other, "runs").details)
    assert (check(other, "machine").state, check(other, "machine").sentence) == (
        "attention",
        f"other programs are not measured here; 24 of {attempts} attempts failed",
    )


def test_the_machine_is_unknown_until_something_was_measured(data):
    assert check(data, "machine").state == "unknown"
    quiet = check(with_responses(data, foreign_load=0.031, machine_stolen=0.004), "machine")
    assert (quiet.state, quiet.value.replace("\u00a0", " ")) == ("fine", "3.10 %")
    assert "(limit 10" in quiet.denominator
    stolen = check(with_responses(data, foreign_load=0.031, machine_stolen=0.04), "machine")
    assert stolen.state == "attention"
    assert check(with_responses(data, machine_stolen=0.004), "machine").value.replace("\u00a0", " ") == "0.40 %"


def test_time_that_the_host_took_is_said_where_it_is_enough_to_spoil_runs(variants):
    def said(variant, of_valid, of_failed):
        data = variants[variant]
        taken = {True: of_valid, False: of_failed}
        runs = [replace(run, responses={**run.responses, "machine_stolen": taken[run.valid]}) for run in data.runs]
        return " ".join(check(replace(data, runs=tuple(runs)), "machine").details).replace("\u00a0", " ")

    noisy = said("invalid", 0.011, 0.083)
    assert "host took up to 8.30 % of the CPU time while a run was measured" in noisy
    assert "median 1.10 % in 28 attempts that passed, 8.30 % in 24 attempts that failed" in noisy
    assert "host took" not in said("invalid", 0.004, 0.019)
    assert "(median 4.00 % in 40 attempts that passed):" in said("usual", 0.04, 0.0)


def drifting(data, whole):
    """Return the study with runs that rise by a factor from first to last, and the warning about it."""
    last = data.table["sequence"].max()
    moved = pl.col("value") * whole ** (pl.col("sequence") / last)
    return warned(replace(data, table=data.table.with_columns(moved)), "drift", lambda row: True)


def test_drift_is_held_against_the_margin(data):
    small, large = (check(drifting(data, whole), "drift") for whole in (1.0, 1.6))
    assert (small.state, large.state) == ("fine", "attention")
    as_reviewed(large.sentence)
    assert large.value.startswith("+")
    assert check(data, "drift").value == "0"
    other = check(warned(data, "carry-over"), "drift")
    assert (other.state, other.value, other.sentence) == ("attention", "0", "found: carry-over")


def test_dependent_blocks_fail_where_a_verdict_is_refused_for_them(data, variants):
    assert (check(data, "blocks").value, check(data, "blocks").state) == ("0", "fine")
    row = row_of(data, "node-proxy")
    one = warned(data, "dependent-blocks", lambda found: found is row)
    found = check(one, "blocks")
    assert (found.state, found.value, found.denominator) == (
        "attention",
        "1",
        f"of {PRIMARY} contrasts depend on the previous block",
    )
    assert check(changed(one, lambda found: found.key == row.key, verdict="dependent"), "blocks").state == "problem"
    assert check(variants["saturated"], "blocks").state == "unknown"  # 5 blocks
    apart = check(warned(data, "places-differ", lambda found: found is row), "blocks")
    assert (apart.state, apart.value, apart.sentence) == ("attention", "0", "1 differ between places or sessions")


def test_the_detectable_effect_is_that_of_the_response_that_is_furthest_from_its_margin(variants):
    data = variants["usual"]
    rows = [row for row in data.verdicts if not row.exploratory and not row.twin]
    middle = {name: sorted(row.mde for row in rows if row.response == name)[1] for name in data.plan.study.primary}
    largest = max(middle, key=lambda name: middle[name] / next(r.margin for r in rows if r.response == name))
    found = check(data, "power")
    assert found.value == wording.percent(middle[largest], 2)
    assert all(wording.percent(mde, 2) in found.details[0] for mde in middle.values())
    assert "at most 5" in found.details[1]
    open_row = rows[0]
    is_open = changed(data, lambda row: row is open_row, verdict="inconclusive", qualifier="", blocks_needed=31)
    assert check(is_open, "power").state == "attention"
    assert "1 of 6" in check(is_open, "power").sentence
    assert "30 blocks" in check(is_open, "power").advice
    assert check(warned(data, "influential-block"), "power").state == "attention"


def test_limits_name_what_was_measured_and_alarm_at_a_debug_build_alone(data):
    assert limits(data).state == "fine"
    as_reviewed(limits(data).sentence)
    versions = {"envoy": "1.40.0 DEBUG Clean BoringSSL 9e5580933739"}
    runs = tuple(replace(run, versions=versions) if run.treatment == "sidecar+mtls" else run for run in data.runs)
    found = limits(replace(data, runs=runs))
    assert (found.state, found.sentence.partition(";")[0]) == ("problem", "DEBUG build of envoy")
    assert "(DEBUG), in sidecar+mtls." in found.details[0]
    own = {"mesh istio": "1.31.0, an own build of a snapshot"}
    cluster = asked(replace(data, runs=tuple(replace(run, versions=own) for run in data.runs)), backend="kubernetes")
    as_reviewed(limits(cluster).sentence)


def test_it_holds_the_sentence_the_checks_and_the_picture_in_this_order(data):
    shown = first_screen(data)
    for text in (*tables.headlines(data), tables.trust(data).text, figures.answer(data).alt):
        assert text in shown.text
    assert shown.html.index("mt-headline") < shown.html.index("mt-checks") < shown.html.index("mt-figure")


def test_a_sentence_longer_than_a_phone_has_the_count_of_checks_before_it(synth, tmp_path, variants):
    long = synth.study_data(
        tmp_path, synth.Shape(treatments=("none", "none-aa", "sidecar", "sidecar+mtls", "node-proxy"), requests=300)
    )
    assert "mt-ahead" not in first_screen(variants["no twin"]).html
    html = first_screen(long).html
    assert html.index(f'href="#checks">Can I trust it? {tally(checks(long)).capitalize()}') < html.index("mt-headline")
    assert html.count('id="checks"') == 1


def test_the_picture_holds_every_primary_row_once(data):
    table = figures.answer(data).table
    primary = [row for row in data.verdicts if row.response in data.plan.study.primary]
    assert sorted(table["ratio"].to_list()) == sorted(row.ratio for row in primary)


def test_the_picture_says_which_panels_it_has_no_room_for(synth, tmp_path):
    loads = tuple(synth.FixedRate(rate, 10, 6.0) for rate in (100, 200, 300, 400, 500, 600, 700))
    wide = synth.study_data(tmp_path, synth.Shape(loads=loads, blocks=5, requests=300))
    figure = figures.answer(wide)
    assert "also has the other 9" in figure.caption
    assert set(figure.table["load"]) == {load.label for load in loads[:6]}
