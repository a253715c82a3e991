"""The explorer: a widget that is moved changes what is shown, and nothing that is not the study's own goes unmarked."""

import json
import re
import shutil

import pytest
from commandline import SAMPLE
from refused import refused

import meshtrial as mt
from meshtrial.api.study import RecordedStudy
from meshtrial.errors import RecordError, UsageError
from meshtrial.explore import views
from meshtrial.explore.app import Explorer

VERDICTS, ALL_RUNS, ONE_RUN, TWO = range(4)


@pytest.fixture
def explorer() -> Explorer:
    return mt.explore(SAMPLE)


def option(choice, title: str):
    """The value behind a title of a menu or of buttons."""
    return next(value for label, value in choice.options if title in label)


def packed(explorer: Explorer, name: str):
    return next(path for label, path in explorer.studies.options if name in label and path.suffix == ".zip")


def picture(html: str) -> str:
    (found,) = re.findall(r'<img class="mt-svg"[^>]*src="([^"]+)"', html)
    return found


def test_it_opens_the_sample_with_the_study_s_own_verdicts(explorer):
    assert mt.explore().study.name == "ambient_vs_no_mesh"
    html = explorer.verdicts.pane.shown.widget.value
    assert "Forest plot against none" in html
    assert "As declared before the runs" in explorer.verdicts.state.widget.value
    assert "After the fact" not in html


def test_a_margin_changes_a_verdict_and_marks_everything(explorer):
    own = explorer.verdicts.pane.shown.widget.value
    explorer.verdicts.margin.value, explorer.verdicts.floor.value = "200%", "5ms"
    later = explorer.verdicts.pane.shown.widget.value
    assert picture(own) != picture(later)
    assert "slower, material" in own
    assert "slower, below margin" in later
    for place in (explorer.verdicts.state, explorer.verdicts.pane.shown):
        assert "After the fact" in place.widget.value
    assert "reanalyse(margin=&#39;200%,5ms&#39;)" in explorer.verdicts.pane.code.widget.value


def test_the_button_goes_back_to_what_was_declared(explorer):
    own = explorer.verdicts.pane.shown.widget.value
    explorer.verdicts.margin.value, explorer.verdicts.alpha.value = "50%", 0.01
    assert explorer.verdicts.pane.shown.widget.value != own
    assert explorer.verdicts.reset.layout.display is None
    explorer.verdicts.reset.click()
    assert explorer.verdicts.pane.shown.widget.value == own
    assert explorer.verdicts.reset.layout.display == "none"


def test_the_declared_margin_by_hand_is_no_analysis_after_the_fact(explorer):
    explorer.verdicts.alpha.value = 0.05
    assert "As declared" in explorer.verdicts.state.widget.value
    assert "reanalyse" not in explorer.verdicts.pane.code.widget.value


def test_what_cannot_be_judged_says_why_and_is_not_shown_as_declared(explorer, monkeypatch):
    monkeypatch.setattr(RecordedStudy, "reanalyse", refuse)
    explorer.verdicts.margin.value = "50%"
    assert "no such margin" in explorer.verdicts.pane.shown.widget.value
    assert "As declared" not in explorer.verdicts.state.widget.value
    explorer.verdicts.reset.click()
    assert "As declared" in explorer.verdicts.state.widget.value


def refuse(study: RecordedStudy, **_: object) -> RecordedStudy:
    raise UsageError("no such margin")


def test_another_baseline_is_offered_for_every_treatment_but_the_twin(explorer):
    assert [value for _, value in explorer.verdicts.baseline.options] == ["", "none", "node-proxy"]
    explorer.verdicts.baseline.value = "node-proxy"
    assert "Forest plot against node-proxy" in explorer.verdicts.pane.shown.widget.value


def test_a_treatment_that_is_not_ticked_is_not_shown(explorer):
    assert explorer.treatments.boxes["none"].disabled
    assert explorer.treatments.boxes["none-aa"].disabled
    explorer.treatments.boxes["node-proxy"].value = False
    assert "node-proxy" not in explorer.verdicts.pane.shown.widget.value
    assert "none-aa" in explorer.verdicts.pane.shown.widget.value
    explorer.treatments.boxes["node-proxy"].value = True
    assert "node-proxy" in explorer.verdicts.pane.shown.widget.value


def test_a_load_that_is_not_ticked_is_not_shown(explorer):
    explorer.studies.value = packed(explorer, "scale_out")
    left, kept = [*explorer.loads.boxes][:2]
    assert left in explorer.verdicts.pane.shown.widget.value
    explorer.loads.boxes[left].value = False
    assert left not in explorer.verdicts.pane.shown.widget.value
    assert kept in explorer.verdicts.pane.shown.widget.value


def test_another_study_has_its_own_treatments_runs_and_nothing_asked_of_it(explorer):
    explorer.verdicts.margin.value = "50%"
    before = [*explorer.treatments.boxes]
    explorer.studies.value = packed(explorer, "feature_impact")
    assert [*explorer.treatments.boxes] == [*explorer.study.treatments] != before
    assert explorer.verdicts.margin.value == ""
    assert "After the fact" not in explorer.verdicts.pane.shown.widget.value
    assert len(explorer.run.run.options) == len(explorer.study.runs())


def test_every_response_and_every_kind_of_figure_of_all_runs(explorer):
    explorer.pages.selected_index = ALL_RUNS
    seen = set()
    for _, name in explorer.runs.what.options:
        explorer.runs.what.value = name
        seen.add((explorer.runs.pane.shown.widget.value, explorer.runs.pane.code.widget.value))
        assert name in explorer.runs.pane.code.widget.value
    assert len(seen) == len(explorer.runs.what.options)
    explorer.runs.what.value = "figures.runs_by_block"
    first = explorer.runs.pane.shown.widget.value
    explorer.runs.response.value = "path_cpu_s_per_request"
    assert picture(explorer.runs.pane.shown.widget.value) != picture(first)


def test_a_run_is_stepped_through_and_looked_into(explorer):
    explorer.pages.selected_index = ONE_RUN
    assert "01-1-none" in explorer.run.pane.shown.widget.value
    explorer.run.after.click()
    explorer.run.after.click()
    assert "01-3-node-proxy" in explorer.run.pane.shown.widget.value
    shown = {}
    for title, name in explorer.run.what.options:
        explorer.run.what.value = name
        shown[title] = explorer.run.pane.shown.widget.value
    assert len(set(shown.values())) == len(shown)
    assert "plaintext refused" in shown["Proofs"]
    explorer.run.what.value = "tables.run_log"
    explorer.run.log.value = "fortio.txt"
    assert "fortio.txt of run 01-3-node-proxy" in explorer.run.pane.shown.widget.value
    explorer.run.before.click()
    assert explorer.run.log.value == "fortio.txt"


def test_runs_of_treatments_that_are_not_shown_are_not_offered(explorer):
    explorer.pages.selected_index = ONE_RUN
    explorer.treatments.boxes["node-proxy"].value = False
    assert len(explorer.run.run.options) == 16
    assert not any("node-proxy" in label for label, _ in explorer.run.run.options)


def test_a_packed_study_without_requests_and_logs_says_so(explorer):
    explorer.pages.selected_index = ONE_RUN
    explorer.studies.value = packed(explorer, "mesh_comparison")
    assert "its requests were left out when it was packed" in explorer.run.pane.shown.widget.value
    explorer.run.what.value = "tables.run_log"
    assert "its logs were left out when it was packed" in explorer.run.pane.shown.widget.value
    assert explorer.run.log.layout.display == "none"


def test_two_studies_of_one_question_stand_beside_each_other(tmp_path):
    again = tmp_path / "ambient_vs_no_mesh" / "20270101T000000Z-77c58730"
    shutil.copytree(SAMPLE, again)
    explorer = mt.explore(SAMPLE)
    explorer.pages.selected_index = TWO
    assert "ambient_vs_no_mesh" in explorer.two.other.label
    explorer.two.other.value = again
    assert explorer.two.pane.shown.widget.value.count("<img") == 1
    explorer.two.what.value = "tables.between"
    assert "Study against study" in explorer.two.pane.shown.widget.value


def test_an_unreadable_study_is_a_sentence_and_the_next_one_opens(explorer, tmp_path):
    broken = tmp_path / "rollout" / "20260101T000000Z-aaaa"
    broken.mkdir(parents=True)
    (broken / "plan.json").write_text("{")
    again = mt.explore(SAMPLE)
    again.studies.value = broken
    assert str(broken / "plan.json") in again.about.widget.value
    assert again.pages.layout.display == "none"
    again.studies.value = SAMPLE
    assert again.pages.layout.display is None
    with refused(RecordError, names=[broken / "plan.json"]):
        mt.explore(broken)


def test_a_packed_study_is_opened_first_whether_it_was_unpacked_before_or_not():
    path = next(path for name, path in mt.recorded_studies().items() if name.startswith("feature_impact"))
    first, again = mt.explore(path), mt.explore(path)
    assert first.study.path == again.study.path
    assert len(first.studies.options) == len(again.studies.options) == len(mt.recorded_studies())


def test_a_study_that_went_on_is_read_again(explorer, tmp_path):
    folder = tmp_path / "ambient_vs_no_mesh" / SAMPLE.name
    shutil.copytree(SAMPLE, folder)
    assert mt.explore(folder).study.verdicts().height == 34
    path = folder / "verdicts.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:2]))
    assert mt.explore(folder).study.verdicts().height == 2


def test_a_page_without_widgets_shows_the_views_as_they_stand(explorer):
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "Forest plot against none" in bundle["text/html"]
    assert bundle["text/plain"].startswith("Explorer of ambient_vs_no_mesh")


def test_a_change_is_analysed_and_drawn_once_and_nothing_is_read_again(explorer, monkeypatch):
    asked, drawn, read = [], [], []
    reanalyse, forest = RecordedStudy.reanalyse, mt.figures.forest
    monkeypatch.setattr(
        RecordedStudy, "reanalyse", lambda study, **given: asked.append(given) or reanalyse(study, **given)
    )
    monkeypatch.setattr(mt.figures, "forest", lambda study: drawn.append(study) or forest(study))
    monkeypatch.setattr(views, "open_study", read.append)
    for margin in ("1%", "10%", "1%"):  # the last is shown as it was
        explorer.verdicts.margin.value = margin
    assert asked == [{"margin": "1%"}, {"margin": "10%"}]
    assert len(drawn) == 2
    assert read == []
