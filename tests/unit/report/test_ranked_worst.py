"""A treatment that sometimes fails by itself: its latencies rank worst, and every page says so."""

import json
import re

import pytest
from unit.report.synth import row_of

from meshtrial.design.responses import default_scales
from meshtrial.report import figures, tables, wording
from meshtrial.vocabulary import VerdictLabel

LAST = "sidecar+mtls"


@pytest.fixture(scope="module", params=[2, 5], ids=["two blocks", "half of the blocks"])
def failing(request, synth, tmp_path_factory):
    shape = synth.Shape(
        failed_blocks=tuple(range(1, request.param + 1)), own_failures="ranked", scales=default_scales()
    )
    return request.param, synth.study_data(tmp_path_factory.mktemp("failing"), shape)


def test_its_latency_is_judged_over_all_blocks_and_an_end_is_open(failing):
    count, data = failing
    row = row_of(data, LAST, "latency_p50_s")
    assert (row.verdict, row.n_blocks) == (VerdictLabel.SLOWER, 10)
    assert row.difference_low > 0
    assert (row.difference is None) is (count == 5)
    assert row.difference_high is None
    assert f"ranked last in their block: {count} of {LAST}" in str(row.warnings)
    assert json.loads(json.dumps(row.to_dict(), allow_nan=False))


def test_a_twin_that_fails_by_itself_has_no_size_of_noise(synth, tmp_path):
    shape = synth.Shape(
        treatments=("none", "node-proxy", "none-aa"), failed_blocks=(1, 2, 3, 4, 5), own_failures="ranked"
    )
    data = synth.study_data(tmp_path, shape)
    rows = [row for row in data.verdicts if row.response == "latency_p50_s"]
    assert {row.noise_floor for row in rows} == {None}
    assert all(json.dumps(row.to_dict(), allow_nan=False) for row in data.verdicts)
    assert "nan" not in tables.headline(data)


def test_treatments_that_miss_the_rate_as_often_are_not_saturated(synth, tmp_path):
    both = (("2000rps-10c", LAST), ("2000rps-10c", "none"))
    shape = synth.Shape(requests=300, own_failures="tested", saturated=both)
    data = synth.study_data(tmp_path / "both", shape)
    row = row_of(data, LAST)
    assert (row.verdict, row.qualifier) == (VerdictLabel.INVALID, "both")
    counts = "it did not reach the requested rate in 10 of 10 blocks, and its baseline in 10"
    assert counts in str(row.warnings)
    assert f"{LAST} is invalid: {counts}" in tables.headline(data)
    alone = synth.study_data(tmp_path / "alone", synth.Shape(requests=300, own_failures="tested", saturated=both[:1]))
    assert row_of(alone, LAST).verdict is VerdictLabel.SATURATED
    ranked = synth.study_data(tmp_path / "ranked", synth.Shape(requests=300, own_failures="ranked", saturated=both))
    assert (row_of(ranked, LAST).verdict, row_of(ranked, LAST).qualifier) == (VerdictLabel.SATURATED, "both")


def test_what_it_used_is_as_measured(failing):
    _, data = failing
    row = row_of(data, LAST, "path_cpu_s_per_request")
    assert row.difference_high is not None
    assert "rank behind" not in str(row.warnings)


def test_pages_and_figures_say_it_and_bear_the_open_end(failing):
    count, data = failing
    shown = tables.trust(data).text
    assert f"may be the cause of {count} of {count} failures" in shown
    assert "ranks last in its block" in shown
    if count == 5:
        assert re.search(
            rf"{re.escape(LAST)} is slower at p50 .*\(at least \d+\.\d+x", wording.to_ascii(tables.headline(data))
        )
    interval = wording.effect_interval(row_of(data, LAST, "latency_p50_s"))
    assert re.match(r"at least \d+\.\d+×", interval)
    figure = figures.forest(data)
    for made in (tables.headline(data), tables.verdict_table(data).text, figure.alt):
        assert not re.search(r"\b(nan|inf)\b", made)
    assert interval in figure.alt
    assert ("too many runs are ranked last" in figure.svg) is (count == 5)
