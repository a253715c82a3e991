"""A report's view of sessions: figure, first screen, rows, and earlier studies of its folder."""

from pathlib import Path

import numpy as np
import pytest

from meshtrial.design.plan import make_plan
from meshtrial.inference import infer
from meshtrial.inference.between import estimate_in
from meshtrial.inference.sessions import session_effects
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.checks import limits
from meshtrial.report.figures import sessions
from meshtrial.report.tables.validity import sessions_of_blocks
from meshtrial.report.tables.verdicts import in_words, verdict_table


@pytest.fixture
def studied(make_study, make_record):
    """A study whose node proxy adds about 0.4 ms to a baseline of 1 ms, with a spread between sessions."""

    def made(count: int, blocks: int = 2) -> StudyData:
        rng = np.random.default_rng(4)
        plan = make_plan(make_study(blocks=blocks * count, sessions=count, unit_sessions=6))
        added = np.repeat(rng.normal(0.4, 0.02, count), blocks)
        runs = []
        for run in plan.runs:
            extra = added[run.repetition - 1] if run.treatment == "node-proxy" else 0.0
            runs.append(make_record(plan, run, {"latency_p50_s": 1e-3 * (1 + extra + rng.normal(0, 0.002))}))
        table, rows = infer(plan, runs)
        return StudyData(Path("nowhere"), plan, {}, tuple(runs), table, tuple(rows))

    return made


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_the_figure_has_every_sessions_estimate_and_the_prediction(studied):
    data = studied(6)
    table = sessions(data).table.filter(treatment="node-proxy")
    row = next(row for row in data.verdicts if row.treatment == "node-proxy")
    effects = session_effects(data, row, by_difference=row.by_difference)
    scale = 1e3 if row.by_difference else 1.0
    assert table["estimate"].to_list() == pytest.approx([value * scale for value in effects.estimates])
    assert table["predicted low"].unique().to_list() == pytest.approx([effects.low * scale])
    assert "<svg" in sessions(data).svg


def test_one_session_has_neither_figure_nor_table(studied):
    data = studied(1, 6)
    assert sessions(data).nothing
    assert sessions_of_blocks(data).text == ""
    assert "one session; another may differ" in limits(data).sentence


@pytest.mark.parametrize(
    ("count", "blocks", "said", "unsaid"),
    [
        (1, 12, "12 blocks in this session", "sessions"),
        (4, 3, "12 blocks in these sessions", "this session"),
        (6, 2, "6 sessions", "blocks in"),
    ],
)
def test_a_row_says_for_which_sessions_its_interval_holds(studied, count, blocks, said, unsaid):
    data = studied(count, blocks)
    row = next(row for row in data.verdicts if row.treatment == "node-proxy")
    assert said in in_words(row)
    assert unsaid not in in_words(row)
    assert said in plain(verdict_table(data).text)


def test_the_first_screen_predicts_another_session(studied):
    data = studied(6)
    row = next(row for row in data.verdicts if row.treatment == "node-proxy")
    effects = session_effects(data, row, by_difference=row.by_difference)
    said = plain(wording.range_of_effect(row, effects.low, effects.high))
    assert f"6 sessions; another would show {said}" in plain(limits(data).sentence)
    assert plain(limits(studied(2, 6)).sentence).endswith("2 sessions")


def test_earlier_studies_beside_this_one_say_how_much_sessions_differ(studied, monkeypatch):
    """Three studies of one question: the last one's first screen shows the results of the two earlier ones."""
    first, second, last = studied(1, 8), studied(1, 9), studied(1, 10)
    monkeypatch.setattr("meshtrial.report.checks.earlier", lambda data: [first, second])
    row = next(row for row in last.verdicts if row.treatment == "node-proxy")
    both = [estimate_in(one, row) for one in (first, second)]
    said = plain(wording.range_of_effect(row, min(both), max(both)))
    assert f"one session; 2 earlier sessions here showed {said}" in plain(limits(last).sentence)
