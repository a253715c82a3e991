import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest
from matplotlib import pyplot as plt
from unit.report.synth import changed, rewritten, row_of

from meshtrial import stats
from meshtrial.report import figures, wording
from meshtrial.report.figures.latency import Pool

DRAW = {
    "forest": figures.forest,
    "p50": lambda data: figures.runs_by_block(data, "p50"),
    "memory": lambda data: figures.runs_by_block(data, "path_memory_bytes"),
    "ccdf": figures.latency_ccdf,
    "corrected": lambda data: figures.latency_ccdf(data, corrected=True),
    "added": figures.added_latency,
    "resources": figures.resources,
    "drift": figures.drift,
}


@pytest.fixture(scope="module")
def drawn(data):
    return {name: draw(data) for name, draw in DRAW.items()}


@pytest.mark.parametrize("name", DRAW)
def test_every_figure_says_in_numbers_what_is_seen_and_is_well_formed(drawn, name):
    figure = drawn[name]
    assert re.search(r"\d", figure.alt)
    for treatment in ("node-proxy", "sidecar+mtls"):
        assert treatment in figure.alt or name == "drift"
    assert figure.caption
    assert figure.table.height > 0
    assert f'aria-label="{figure.alt[:20]}' in figure.svg
    root = ET.fromstring(figure.svg)
    assert root.get("role") == "img"
    assert "<style" not in figure.svg
    assert "nan" not in re.sub(r">[^<]*<", "><", figure.svg.lower().replace("dominant", ""))


@pytest.mark.parametrize("name", DRAW)
def test_the_smallest_letters_of_a_figure_are_legible_on_a_phone_of_400_px(drawn, name):
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn[name].svg).group(1))
    sizes = [float(size) for size in re.findall(r"font-size:([\d.]+)px", drawn[name].svg)]
    # The page leaves 368 of 400 px for a drawing.
    assert sizes
    assert min(sizes) * 368 / width >= 9


def test_a_study_that_injected_no_delay_is_no_test_of_the_instrument(data):
    assert figures.detection(data).caption == "No injected delay has been analysed."


def test_figures_leave_nothing_open_and_need_no_screen(synth, tmp_path):
    code = (
        "import matplotlib, sys\n"
        "from meshtrial.report import figures\n"
        "import meshtrial.report\n"
        "from matplotlib import pyplot\n"
        "assert not pyplot.get_fignums()\n"
        "assert 'nbformat' not in sys.modules\n"  # a second and a half of every command and kernel
    )
    environment = os.environ | {"MPLBACKEND": "tkagg"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    figures.forest(synth.study_data(tmp_path))
    assert plt.get_fignums() == []


def test_the_forest_shows_the_rows_and_nothing_else(drawn, data):
    table = drawn["forest"].table
    primary = [row for row in data.verdicts if row.response in data.plan.study.primary]
    assert table.height == len(primary)
    for row in primary:
        name = f"{row.treatment} (A/A twin)" if row.twin else row.treatment
        shown = table.filter(pl.col("response").str.starts_with(row.label), treatment=name)
        assert shown.select("ratio", "ratio low", "ratio high").rows() == [(row.ratio, row.ci_low, row.ci_high)]


@pytest.mark.parametrize("name", ["forest", "answer"])
def test_numbers_are_headed_by_their_unit_and_stand_in_no_other(added, name):
    table = getattr(figures, name)(added).table
    for row in [row for row in added.verdicts if row.response in added.plan.study.primary]:
        shown = table.filter(pl.col("response").str.starts_with(row.label), treatment=wording.treatment(row))
        scale, unit = (1e3, "ms") if row.response.startswith("latency") else (1e6, "µs/request")
        found = shown.select(f"added / {unit}", f"added high / {unit}", f"margin / {unit}").row(0)
        values = (row.difference, row.difference_high, row.margin if row.by_difference else None)
        assert found == tuple(None if value is None else pytest.approx(value * scale) for value in values)
        assert shown["margin / %"].to_list() == [None if row.by_difference else pytest.approx(100 * row.margin)]
        other = {"ms": "µs/request", "µs/request": "ms"}[unit]
        assert shown.select(f"added / {other}", f"added low / {other}").row(0) == (None, None)


def test_added_milliseconds_are_those_of_the_rows(drawn, data):
    for row in data.verdicts:
        if row.response == "latency_p50_s":
            table = drawn["added"].table.filter(treatment=row.treatment)
            shown = table.filter(pl.col("percentile of a typical run") == "p50")
            assert shown["added / ms"].to_list() == [pytest.approx(row.difference * 1e3)]
            assert shown["added low / ms"].to_list() == [pytest.approx(row.difference_low * 1e3)]


def test_every_attempt_stands_in_the_table_by_block(drawn, data):
    table = drawn["p50"].table
    assert table.height == len(data.runs)
    for run, value in zip(table["run"], table["p50 latency / ms"], strict=True):
        record = next(r for r in data.runs if r.run_id == run)
        assert value == pytest.approx(record.responses["latency_p50_s"] * 1e3)


def test_pooled_percentiles_are_numpy_s_over_all_requests(drawn, data):
    values = np.concatenate([data.latency(r)["latency_s"].to_numpy() for r in data.runs if r.treatment == "node-proxy"])
    row = drawn["ccdf"].table.filter(pl.col("treatment") == "node-proxy")
    assert row["requests"].to_list() == [len(values)]
    assert row["pooled p99 / ms"].to_list() == [pytest.approx(np.quantile(values, 0.99) * 1e3)]
    # The typical run's value is another number: the median over each run's own.
    typical = np.median([r.responses["latency_p99_s"] for r in data.runs if r.treatment == "node-proxy"])
    assert row["typical run's p99 / ms"].to_list() == [pytest.approx(typical * 1e3)]


@pytest.mark.usefixtures("undrawn")
def test_a_percentile_without_enough_requests_is_not_given(synth, tmp_path):
    table = figures.latency_ccdf(synth.study_data(tmp_path, synth.Shape(requests=600))).table
    assert "pooled p99 / ms" not in table.columns or table["pooled p99 / ms"].null_count() == table.height
    assert "pooled p90 / ms" in table.columns


@pytest.mark.usefixtures("undrawn")
def test_failed_and_imputed_requests_are_no_latencies(data):
    run, place = data.runs[0], pl.int_range(pl.len())
    with rewritten(data, run, (place != 0).alias("ok"), (place == 1).alias("imputed")) as frame:
        runs = sum(1 for r in data.runs if r.treatment == run.treatment)
        tables = [figures.latency_ccdf(data, corrected=corrected).table for corrected in (False, True)]
        counts = [table.filter(pl.col("treatment") == run.treatment)["requests"].item() for table in tables]
    # The failed one never counts; the skipped one is an estimate and counts in the schedule's view.
    assert counts == [runs * frame.height - 2, runs * frame.height - 1]


@pytest.mark.usefixtures("undrawn")
def test_a_missing_file_is_said_and_the_rest_is_drawn(synth, tmp_path):
    data = synth.study_data(tmp_path)
    (data.run_folder(data.runs[0]) / "latency.parquet").unlink()
    figure = figures.latency_ccdf(data)
    assert data.runs[0].run_id in figure.caption
    assert figure.table.height == 4


def test_steps_are_exact_points_of_the_distribution():
    values = np.sort(np.random.default_rng(1).exponential(size=5000))
    x, requests = Pool("l", "t", (values,), values).steps()
    assert len(x) < 600
    for value, within in zip(x, np.cumsum(requests), strict=True):
        assert within == (values <= value).sum()
    assert x[-1] == values[-1]


def test_resources_add_up_to_what_the_runs_recorded(drawn, data):
    table = drawn["resources"].table.filter((pl.col("treatment") == "node-proxy") & (pl.col("role") == "data plane"))
    expected = np.mean([r.responses["data_plane_cpu_s_per_request"] for r in data.runs if r.treatment == "node-proxy"])
    assert table["CPU per request / µs"].sum() == pytest.approx(expected * 1e6)
    assert table.height == 2


def test_residuals_have_no_middle(drawn):
    residuals = drawn["drift"].table["residual / %"]
    assert abs(float(residuals.median())) < 1


DRAWN = {
    "no verdicts": ("forest", "added", "p50"),
    "invalid": ("forest", "p50", "resources"),
    "p999": ("added",),
    "no twin": ("forest", "drift"),
    "saturated": tuple(DRAW),
    "two baselines": ("forest", "added"),
}


@pytest.mark.parametrize("variant", DRAWN)
def test_every_variant_is_drawn(variants, variant):
    for name in DRAWN[variant]:
        figure = DRAW[name](variants[variant])
        ET.fromstring(figure.svg)
        assert figure.alt


def test_an_unbounded_interval_is_drawn_to_the_edge(data):
    figure = figures.forest(changed(data, lambda row: row.response == "latency_p50_s", ci_high=math.inf))
    ET.fromstring(figure.svg)
    assert "∞" in figure.alt


def test_hostile_names_stay_text(data):
    hostile = '<script>alert("x")</script>$\\frac$'
    for draw in (figures.forest, figures.added_latency):
        shown = draw(changed(data, lambda row: row.treatment == "node-proxy", treatment=hostile))
        assert "<script" not in shown.svg
        assert "<script" not in shown._repr_html_()
        assert "alert(" in shown.svg
        ET.fromstring(shown.svg)


@pytest.fixture(scope="module")
def other(synth, tmp_path_factory):
    shape = synth.Shape(treatments=("none", "none-aa", "node-proxy"), seed=8)
    return synth.study_data(tmp_path_factory.mktemp("other"), shape)


@pytest.mark.usefixtures("undrawn")
def test_what_both_deployed_stands_together_and_what_one_lacks_is_there_all_the_same(data, other):
    table = figures.two_studies(data, other).table
    first = table.filter(response=table["response"][0])
    assert first["treatment"].to_list() == [
        "none-aa A (A/A twin)",
        "none-aa B (A/A twin)",
        "node-proxy A",
        "node-proxy B",
        "sidecar+mtls A",
    ]


@pytest.mark.usefixtures("undrawn")
def test_the_numbers_are_those_of_each_study(data, other):
    both = figures.two_studies(data, other).table
    for name, study in (("A", data), ("B", other)):
        own = figures.forest(study).table
        mine = both.filter(both["treatment"].str.contains(f" {name}"))
        for column in ("ratio", "ratio low", "ratio high", "verdict"):
            assert sorted(mine[column].to_list()) == sorted(own[column].to_list())


@pytest.mark.usefixtures("undrawn")
def test_it_goes_through_the_detectable_effect_of_the_study_and_falls(variants):
    data = variants["usual"]
    table = figures.power(data).table
    rows = [row for row in data.verdicts if row.response in data.plan.study.primary and not row.twin]
    assert rows
    for row in rows:
        curve = table.filter((table["response"] == row.response) & (table["treatment"] == row.treatment))
        own = curve.filter(curve["this study"])
        assert own["blocks"].to_list() == [row.n_blocks]
        assert own["unit"].item() == "%"
        assert own["effect"].item() == pytest.approx(100 * row.mde)
        effects = curve["effect"].to_list()
        assert effects == sorted(effects, reverse=True)
        assert len(set(effects)) == len(effects)


def test_of_a_verdict_of_what_is_added_it_is_in_its_unit(added):
    table = figures.power(added).table
    row = row_of(added, "sidecar+mtls")
    own = table.filter(
        (table["response"] == row.response) & (table["treatment"] == row.treatment) & table["this study"]
    )
    assert (own["effect"].item(), own["unit"].item()) == (pytest.approx(1e3 * row.mde), "ms")


@pytest.mark.usefixtures("undrawn")
def test_no_curve_begins_below_the_floor_of_the_exact_test(variants):
    data = variants["usual"]
    table = figures.power(data).table
    primary = data.plan.study.primary[0]
    family = sum(row.response == primary and not row.twin for row in data.verdicts)
    assert table["blocks"].min() >= stats.smallest_n(family, data.plan.study.alpha)


def test_without_a_known_noise_it_says_so(variants):
    data = variants["usual"]
    figure = figures.power(changed(data, mde=None))
    assert figure.nothing
    assert "noise of the primary responses is not known" in figure.caption
