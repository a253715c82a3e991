"""The curve of what more blocks would find goes through what this study could find, and falls."""

import pytest
from unit.report.synth import changed, row_of

from meshtrial import stats
from meshtrial.report import figures


@pytest.fixture(scope="module")
def data(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("power"), synth.Shape(requests=300))


@pytest.mark.usefixtures("undrawn")
def test_it_goes_through_the_detectable_effect_of_the_study_and_falls(data):
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
def test_no_curve_begins_below_the_floor_of_the_exact_test(data):
    table = figures.power(data).table
    primary = data.plan.study.primary[0]
    family = sum(row.response == primary and not row.twin for row in data.verdicts)
    assert table["blocks"].min() >= stats.smallest_n(family, data.plan.study.alpha)


def test_without_a_known_noise_it_says_so(data):
    figure = figures.power(changed(data, mde=None))
    assert figure.nothing
    assert "noise of the primary responses is not known" in figure.caption
