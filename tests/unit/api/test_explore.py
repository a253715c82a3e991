"""The explorer: the view follows the selection, undeclared analyses are marked, and the shown code makes the view."""

import html
import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commandline import SAMPLE
from refused import refused

import meshtrial as mt
from meshtrial import paths
from meshtrial.api import explore as app
from meshtrial.api.explore import TABS, Explorer, View
from meshtrial.api.study import RecordedStudy
from meshtrial.errors import RecordError, UsageError
from meshtrial.report.markup import ON_PAGE

VERDICTS, ALL_RUNS, ONE_RUN, TWO = range(4)


@pytest.fixture
def explorer() -> Explorer:
    return mt.explore(SAMPLE)


@pytest.fixture
def explorer_beside(tmp_path, monkeypatch) -> Explorer:
    """Return the sample and a copy that was recorded later."""
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    again = tmp_path / "ambient_vs_no_mesh" / "20270101T000000Z-77c58730"
    shutil.copytree(SAMPLE, again)
    explorer = mt.explore(SAMPLE)
    explorer.tabs.selected_index = TWO
    explorer.other.value = again
    explorer.tabs.selected_index = VERDICTS
    return explorer


def packed(explorer: Explorer, name: str) -> Path:
    return next(path for label, path in explorer.studies.options if label.startswith(name) and path != SAMPLE)


def tick(row: Any, name: str) -> Any:
    return next(box for box in row.children if box.description == name)


def names(row: Any) -> list[str]:
    _, *boxes = row.children
    return [box.description for box in boxes]


def lines(explorer: Explorer) -> str:
    (code,) = re.findall(r'<pre class="mt-log mt-python">(.*?)</pre>', explorer.code.value, flags=re.S)
    return html.unescape(code)


def shown_by(code: str) -> str:
    """Return what a cell with these lines shows, one object below the other."""
    known: dict[str, Any] = {"mt": mt}
    shown = []
    for line in code.splitlines():
        if " = " in line:
            exec(line, known)
        else:
            shown.append(str(eval(line, known)._repr_html_()))
    return "\n".join(shown)


def test_it_opens_the_sample_with_the_study_s_own_verdicts(explorer):
    assert mt.explore().study.name == "ambient_vs_no_mesh"
    assert mt.explore(mt.open_study(SAMPLE)).study.path == SAMPLE
    assert "Forest plot against none" in explorer.view.value
    assert "As declared before the runs" in explorer.state.value
    assert "After the fact" not in explorer.view.value
    assert "24 runs, 24 of them valid" in explorer.about.value


def test_no_study_at_all_says_what_records_one(monkeypatch):
    monkeypatch.setattr(app, "recorded_studies", dict)
    with refused(UsageError):
        mt.explore()


def test_a_margin_changes_a_verdict_and_marks_everything(explorer):
    own = explorer.view.value
    explorer.margin.value, explorer.floor.value = "200%", "5ms"
    assert "slower, material" in own
    assert "slower, below margin" in explorer.view.value
    assert "After the fact" in explorer.state.value
    assert explorer.view.value.index("Changed after the fact") < explorer.view.value.index("Forest plot")
    assert "study.reanalyse(margin='200%,5ms')" in lines(explorer)
    assert shown_by(lines(explorer)) == explorer.view.value


def test_the_button_goes_back_to_what_was_declared(explorer):
    own = explorer.view.value
    explorer.margin.value, explorer.alpha.value = "50%", 0.01
    assert "margin='50%', alpha=0.01" in lines(explorer)
    assert explorer.view.value != own
    assert explorer.reset.layout.display is None
    explorer.reset.click()
    assert explorer.view.value == own
    assert explorer.reset.layout.display == "none"


def test_the_declared_level_by_hand_is_no_analysis_after_the_fact(explorer):
    explorer.alpha.value = 0.05
    assert "As declared" in explorer.state.value
    assert "reanalyse" not in lines(explorer)


def test_what_cannot_be_judged_says_why_and_is_not_shown_as_declared(explorer, monkeypatch):
    monkeypatch.setattr(RecordedStudy, "reanalyse", refuse)
    explorer.margin.value = "50%"
    assert "no such margin" in explorer.view.value
    assert "Traceback" not in explorer.view.value
    assert "As declared" not in explorer.state.value
    explorer.reset.click()
    assert "As declared" in explorer.state.value


def refuse(study: RecordedStudy, **_: object) -> RecordedStudy:
    raise UsageError("no such margin")


def test_a_treatment_that_is_not_ticked_is_not_shown(explorer):
    assert [tick(explorer.treatments, name).disabled for name in ("none", "none-aa", "node-proxy")] == [
        True,
        True,
        False,
    ]
    tick(explorer.treatments, "node-proxy").value = False
    assert "node-proxy" not in explorer.view.value
    assert "none-aa" in explorer.view.value
    assert shown_by(lines(explorer)) == explorer.view.value
    assert {*explorer.study.verdicts()["treatment"]} == {"none-aa"}
    tick(explorer.treatments, "node-proxy").value = True
    assert "node-proxy" in explorer.view.value


def test_a_load_that_is_not_ticked_is_not_shown(explorer):
    assert explorer.loads.layout.display == "none"  # one load is no choice
    explorer.studies.value = packed(explorer, "scale_out")
    assert explorer.loads.layout.display is None
    left, kept, *_ = names(explorer.loads)
    assert left in explorer.view.value
    tick(explorer.loads, left).value = False
    assert left not in explorer.view.value
    assert kept in explorer.view.value


def test_another_study_has_its_own_treatments_runs_and_nothing_asked_of_it(explorer):
    explorer.margin.value = "50%"
    explorer.studies.value = packed(explorer, "feature_impact")
    assert names(explorer.treatments) == [*explorer.study.treatments]
    assert "node-proxy" not in explorer.study.treatments
    assert explorer.margin.value == ""
    assert "After the fact" not in explorer.view.value
    explorer.tabs.selected_index = ONE_RUN
    assert len(explorer.run.options) == len(explorer.study.runs())


@pytest.mark.parametrize("index", range(len(TABS)), ids=[*TABS])
def test_every_view_is_what_its_lines_make(explorer_beside, index, monkeypatch):
    monkeypatch.setattr(mt, "open_study", cache(mt.open_study))
    explorer = explorer_beside
    explorer.tabs.selected_index = index
    for name in explorer.views[index].options.values():
        explorer.views[index].value = name
        assert f"mt.{name}(study" in lines(explorer)
        assert len(lines(explorer).splitlines()) <= 3
        assert shown_by(lines(explorer)) == explorer.view.value


def test_a_response_is_chosen_where_a_figure_is_of_one(explorer):
    explorer.tabs.selected_index = ALL_RUNS
    assert [value for _, value in explorer.response.options][:2] == ["latency_p50_s", "path_cpu_s_per_request"]
    assert explorer.response.layout.display is None
    first = explorer.view.value
    explorer.response.value = "path_cpu_s_per_request"
    assert "'path_cpu_s_per_request'" in lines(explorer)
    assert explorer.view.value != first
    explorer.views[ALL_RUNS].value = "tables.validity"
    assert explorer.response.layout.display == "none"


def test_a_run_is_stepped_through_and_looked_into(explorer):
    explorer.tabs.selected_index = ONE_RUN
    assert "01-1-none" in explorer.view.value
    explorer.after.click()
    explorer.after.click()
    assert "01-3-node-proxy" in explorer.view.value
    explorer.views[ONE_RUN].value = "tables.run_proofs"
    assert "plaintext refused" in explorer.view.value
    explorer.views[ONE_RUN].value = "tables.run_log"
    explorer.log.value = "fortio.txt"
    assert "fortio.txt of run 01-3-node-proxy" in explorer.view.value
    explorer.before.click()
    assert explorer.log.value == "fortio.txt"
    explorer.before.click()
    explorer.before.click()  # the first study comes after the last
    assert explorer.run.index == len(explorer.run.options) - 1


def test_runs_of_treatments_that_are_not_shown_are_not_offered(explorer):
    explorer.tabs.selected_index = ONE_RUN
    explorer.after.click()
    chosen = explorer.run.value
    tick(explorer.treatments, "node-proxy").value = False
    assert len(explorer.run.options) == 16
    assert not any("node-proxy" in label for label, _ in explorer.run.options)
    assert explorer.run.value == chosen


def test_two_studies_of_one_question_stand_beside_each_other(explorer_beside):
    explorer = explorer_beside
    explorer.tabs.selected_index = TWO
    assert explorer.other.options[0][0].startswith("ambient_vs_no_mesh ")
    assert ("ambient_vs_no_mesh · 2027-01-01 00:00 · 77c58730", explorer.other.value) in explorer.other.options
    assert "none-aa A (A/A twin)" in explorer.view.value
    assert "none-aa B (A/A twin)" in explorer.view.value
    explorer.views[TWO].value = "tables.between"
    assert "Study against study" in explorer.view.value


def test_two_studies_that_cannot_be_compared_say_why_and_are_shown_all_the_same(explorer):
    explorer.tabs.selected_index = TWO
    explorer.other.value = packed(explorer, "mesh_comparison")
    assert explorer.view.value.count("<figure ") == 1
    explorer.views[TWO].value = "tables.between"
    assert "they ask different questions" in explorer.view.value


def test_an_unreadable_study_is_a_sentence_and_the_next_one_opens(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    broken = tmp_path / "rollout" / "20260101T000000Z-aaaa"
    broken.mkdir(parents=True)
    (broken / "plan.json").write_text("{")
    explorer = mt.explore(SAMPLE)
    explorer.studies.value = broken
    assert str(broken / "plan.json") in explorer.about.value
    assert explorer.tabs.layout.display == "none"
    assert explorer.view.value == ""
    explorer.studies.value = SAMPLE
    assert explorer.tabs.layout.display is None
    assert "Forest plot against none" in explorer.view.value
    with refused(RecordError, names=[broken / "plan.json"]):
        mt.explore(broken)


def test_a_packed_study_is_opened_first_whether_it_was_unpacked_before_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    path = next(path for name, path in mt.recorded_studies().items() if name.startswith("feature_impact"))
    first, again = mt.explore(path), mt.explore(path)
    assert first.study.name == "feature_impact"
    assert first.study.path == again.study.path
    assert len(first.studies.options) == len(again.studies.options) == len(mt.recorded_studies())


def test_a_study_that_went_on_is_read_again(tmp_path):
    folder = tmp_path / "ambient_vs_no_mesh" / SAMPLE.name
    shutil.copytree(SAMPLE, folder)
    assert mt.explore(folder).study.verdicts().height == 34
    path = folder / "verdicts.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:2]))
    assert mt.explore(folder).study.verdicts().height == 2


def test_a_page_without_widgets_shows_the_view_as_it_stands(explorer):
    bundle = explorer._repr_mimebundle_(include=None, exclude=None)
    assert "application/vnd.jupyter.widget-view+json" in bundle
    for place in (explorer.about, explorer.state, explorer.view, explorer.code):
        assert place.value
        assert place.value in bundle["text/html"]
    # A page contains the drawings themselves.
    assert ("<svg" in bundle[ON_PAGE], "<img" in bundle[ON_PAGE]) == (True, False)
    assert explorer.code.value in bundle[ON_PAGE]
    assert bundle["text/plain"].startswith("Explorer of ambient_vs_no_mesh")


def test_a_change_is_analysed_and_drawn_once_and_nothing_is_read_again(explorer, monkeypatch):
    asked, drawn, read = [], [], []
    reanalyse, forest = RecordedStudy.reanalyse, mt.figures.forest
    monkeypatch.setattr(
        RecordedStudy, "reanalyse", lambda study, **given: asked.append(given) or reanalyse(study, **given)
    )
    monkeypatch.setattr(mt.figures, "forest", lambda study: drawn.append(study) or forest(study))
    monkeypatch.setattr(app, "open_study", read.append)
    for margin in ("1%", "10%", "1%"):  # the last view is unchanged
        explorer.margin.value = margin
    assert asked == [{"margin": "1%"}, {"margin": "10%"}]
    assert len(drawn) == 2
    assert read == []
    explorer.tabs.selected_index = ALL_RUNS  # a hidden tab is not drawn
    explorer.loads.children[1].value = False
    assert len(drawn) == 2


def test_what_stands_before_is_not_seen_under_the_next_tab_or_study(explorer, monkeypatch):
    seen = []
    monkeypatch.setattr(View, "html", lambda view: seen.append(explorer.view.value) or "made")
    explorer.tabs.selected_index = ALL_RUNS
    explorer.studies.value = packed(explorer, "mesh_comparison")
    assert seen == ["", ""]
    assert explorer.view.value == "made"


def test_a_path_is_written_as_one_would_type_it(monkeypatch):
    monkeypatch.chdir(paths.NOTEBOOKS)
    first, _ = View(SAMPLE, names=("figures.forest",)).code().splitlines()
    assert first == f"study = mt.open_study('../data/sample/ambient_vs_no_mesh/{SAMPLE.name}')"
    assert mt.open_study(Path(first.split("'")[1])).path == SAMPLE
