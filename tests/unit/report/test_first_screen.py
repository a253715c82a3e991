from dataclasses import replace

from unit.report.synth import changed, row_of

from meshtrial.report import figures, wording
from meshtrial.report.first_screen import first_screen, how_sure
from meshtrial.report.tables import doubts, headlines
from meshtrial.vocabulary import Warning


def test_it_holds_the_sentence_how_sure_it_is_and_the_picture(data):
    shown = first_screen(data)
    for text in (*headlines(data), *how_sure(data)):
        assert text in shown.text
    assert shown.html.index("mt-headline") < shown.html.index("mt-figure") < shown.html.index("How sure")


def test_how_sure_names_blocks_error_level_detectable_effects_and_the_twin(data):
    said = " ".join(how_sure(data)).replace(wording.NBSP, " ")
    assert "10 of 10 planned blocks" in said
    assert "at most 5 % of such studies" in said
    # Of the two treatments the one that takes more.
    p50, p99, cpu = (
        max(row.mde for row in data.verdicts if row.response == name and not row.twin)
        for name in data.plan.study.primary
    )
    least = f"{100 * p50:.2g} % at p50 latency, {100 * p99:.2g} % at p99 latency and {100 * cpu:.2g} % at CPU a request"
    assert f"an effect of about {least}" in said
    assert "The A/A twin none-aa" in said


def test_a_study_without_verdicts_claims_no_error_level(synth, tmp_path):
    bare = synth.study_data(tmp_path, synth.Shape(verdicts=False, blocks=2, requests=300))
    said = " ".join(how_sure(bare))
    assert "at most" not in said
    assert "four times out of five" not in said


def test_the_picture_holds_every_primary_row_once(data):
    table = figures.answer(data).table
    primary = [row for row in data.verdicts if row.response in data.plan.study.primary]
    assert sorted(table["ratio"].to_list()) == sorted(row.ratio for row in primary)


def test_the_picture_says_which_panels_it_has_no_room_for(synth, tmp_path):
    loads = tuple(synth.Load(rate, 10, 6.0) for rate in (100, 200, 300, 400, 500, 600, 700))
    wide = synth.study_data(tmp_path, synth.Shape(loads=loads, blocks=5, requests=300))
    figure = figures.answer(wide)
    assert "has the other 9 too" in figure.caption
    assert set(figure.table["load"]) == {load.label for load in loads[:6]}


def test_marks_say_their_numbers_under_the_pointer(data):
    figure = figures.answer(data)
    row = row_of(data, "sidecar+mtls")
    assert f"<title>sidecar+mtls against none, {wording.change(row.ratio, row.ci_high)}" in figure.svg
    assert "tip:" not in figure.svg


def test_doubts_name_warnings_runs_and_limits(data):
    disagree = Warning("tests-disagree", "signed-rank p = 0.04, sign-flip p = 0.06; add blocks")
    said = doubts(changed(data, lambda row: row.response == "latency_p99_s", warnings=(disagree,)))
    assert said.text.startswith("What could be wrong")
    assert "planned runs were made" in said.text
    assert "signed-rank p = 0.04, sign-flip p = 0.06" in said.text  # a warning of a primary contrast
    assert "reference data planes" in said.text
    assert "mt-alarm" not in said.html


def test_doubts_begin_with_an_a_a_test_that_failed(data):
    called = changed(data, lambda row: row.twin and row.response == "latency_p50_s", verdict="slower", qualifier="")
    said = doubts(called)
    assert "Warning: the A/A twin none-aa" in next(line for line in said.text.splitlines()[1:] if line)
    assert "mt-alarm" in said.html


def test_doubts_begin_with_a_debug_build(data):
    versions = {"envoy": "1.40.0 DEBUG Clean BoringSSL 9e5580933739"}
    runs = tuple(replace(run, versions=versions) if run.treatment == "sidecar+mtls" else run for run in data.runs)
    said = doubts(replace(data, runs=runs))
    first = next(line for line in said.text.splitlines()[1:] if line)
    assert "envoy is no release, by its own word (DEBUG), in sidecar+mtls:" in first
    assert "mt-alarm" in said.html


def test_doubts_name_what_was_excluded(synth, tmp_path):
    broken = synth.study_data(tmp_path, synth.Shape(failed_blocks=(3,), requests=300))
    assert "Block 3" in doubts(broken).text
    assert "mt-alarm" in doubts(broken).html
