"""Two studies on the same axes: every contrast of both, as each of them has it."""

import pytest

from meshtrial.report import figures


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


def test_the_caption_says_that_no_test_stands_between_them(data, other):
    assert "They share no block" in figures.two_studies(data, other).caption
