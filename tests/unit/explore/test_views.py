"""What is shown is what the lines of Python beside it make."""

from pathlib import Path
from typing import Any

import pytest
from commandline import SAMPLE

import meshtrial as mt
from meshtrial import paths
from meshtrial.explore.tabs import AllRuns, OneRun, TwoStudies, Verdicts
from meshtrial.explore.views import Call, Chosen, View

RUN = "01-3-node-proxy"
# Every call that a tab offers, with arguments that it needs.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "figures.runs_by_block": ("latency_p50_s",),
    "figures.drift": ("latency_p50_s",),
    "figures.requests_over_time": (RUN,),
    "figures.components_over_time": (RUN,),
    "tables.run_resources": (RUN,),
    "tables.run_gates": (RUN,),
    "tables.run_proofs": (RUN,),
    "tables.run_log": (RUN, "fortio.txt"),
    "tables.run_facts": (RUN,),
    "figures.two_studies": (Chosen(SAMPLE),),
    "tables.between": (Chosen(SAMPLE),),
}
OFFERED = [
    "tables.moved",
    *(call.name for _, call in Verdicts.SHOWN),
    *(name for tab in (AllRuns, OneRun, TwoStudies) for _, name in tab.SHOWN),
]


def shown_by(code: str) -> str:
    """What a cell with these lines shows."""
    *before, last = code.splitlines()
    names: dict[str, Any] = {"mt": mt}
    exec("\n".join(before), names)
    return str(eval(last, names)._repr_html_())


@pytest.mark.parametrize("name", OFFERED)
def test_the_lines_beside_a_view_make_it(name):
    view = View(Chosen(SAMPLE), (Call(name, ARGUMENTS.get(name, ())),))
    assert len(view.code().splitlines()) <= 3
    assert shown_by(view.code()) == view.html()


@pytest.mark.parametrize(
    "chosen",
    [
        Chosen(SAMPLE, margin="30%", alpha=0.01),
        Chosen(SAMPLE, baseline="node-proxy"),
        Chosen(SAMPLE, treatments=("none", "node-proxy"), loads=("300rps-4c",)),
        Chosen(SAMPLE, treatments=("none",), margin="p50=0.5ms"),
    ],
)
def test_what_was_chosen_is_in_the_lines(chosen):
    view = View(chosen, (Call("figures.forest"),))
    assert len(view.code().splitlines()) == 3
    assert shown_by(view.code()) == view.html()
    assert ("After the fact" in view.html()) == bool(chosen.asked)


def test_several_calls_are_shown_below_each_other_with_a_line_each():
    view = View(Chosen(SAMPLE, margin="1%"), (Call("tables.moved"), Call("figures.forest")))
    *opening, moved, forest = view.code().splitlines()
    assert view.html() == "\n".join(shown_by("\n".join([*opening, last])) for last in (moved, forest))


def test_what_cannot_be_made_is_one_sentence():
    html = View(Chosen(SAMPLE, margin="ten"), (Call("figures.forest"),)).html()
    assert "margin latency_p50_s=ten: must be e.g. 5%" in html
    assert "Traceback" not in html


def test_two_studies_that_cannot_be_compared_say_why_and_are_shown_all_the_same():
    other = Chosen(next(path for name, path in mt.recorded_studies().items() if name.startswith("mesh_comparison")))
    assert "they ask different questions" in View(Chosen(SAMPLE), (Call("tables.between", (other,)),)).html()
    assert View(Chosen(SAMPLE), (Call("figures.two_studies", (other,)),)).html().count("<img") == 1


def test_a_path_is_written_as_one_would_type_it(monkeypatch):
    monkeypatch.chdir(paths.NOTEBOOKS)
    first, _ = View(Chosen(SAMPLE), (Call("figures.forest"),)).code().splitlines()
    assert first == f"study = mt.open_study('../data/sample/ambient_vs_no_mesh/{SAMPLE.name}')"
    assert mt.open_study(Path(first.split("'")[1])).path == SAMPLE
