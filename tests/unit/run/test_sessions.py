"""Sessions: which one is due and when, from the plan and the records alone."""

from dataclasses import replace

import pytest
from refused import refused

from meshtrial.design.plan import divided, make_plan
from meshtrial.design.studies import study_module
from meshtrial.errors import RecordError, UsageError
from meshtrial.records.store import StudyStore
from meshtrial.run import sessions

START_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC
GAP_S = 600.0


@pytest.fixture
def store(make_study, tmp_path):
    return StudyStore.create(tmp_path, make_plan(make_study(blocks=5, sessions=2, session_gap_s=GAP_S)), {})


@pytest.fixture
def record(store, make_record):
    def recorded(blocks, minute):
        for run in store.plan.runs:
            if run.repetition in blocks:
                made = make_record(store.plan, run, {})
                ended = replace(made, finished_at=f"2026-01-01T00:{minute:02d}:00+00:00")
                store.finish(store.begin(run.run_id, 1), ended, None)

    return recorded


@pytest.mark.parametrize(
    ("blocks", "shares", "expected"),
    [
        (4, 1, [(1, 4)]),
        (5, 2, [(1, 3), (4, 5)]),
        (6, 6, [(n, n) for n in range(1, 7)]),
        (7, 3, [(1, 3), (4, 5), (6, 7)]),
    ],
)
def test_blocks_are_divided_into_neighbours(blocks, shares, expected):
    assert [(share[0], share[-1]) for share in divided(blocks, shares)] == expected


def test_the_first_session_is_due_at_once(store):
    session = sessions.next_session(store)
    assert (session.number, session.of, list(session.blocks), session.due_unix_s) == (1, 2, [1, 2, 3], 0.0)
    assert sessions.gaps_s(store.plan, store.records()) == GAP_S


def test_the_second_session_is_due_a_gap_after_the_first(store, record):
    record([1, 2, 3], 4)
    session = sessions.next_session(store)
    assert (session.number, list(session.blocks)) == (2, [4, 5])
    assert session.due_unix_s == START_S + 4 * 60 + GAP_S
    assert session.remaining_s(START_S + 10 * 60) == 240
    assert session.remaining_s(START_S + 20 * 60) == 0
    assert "00:14:00" in session.announcement(START_S + 5 * 60)
    assert session.remaining_s(START_S - 86_400) == GAP_S  # the clock was set back
    assert sessions.gaps_s(store.plan, store.records()) == GAP_S


def test_an_interrupted_session_resumes_at_once(store, record):
    record([1, 2, 3], 4)
    record([4], 15)
    session = sessions.next_session(store)
    assert (session.number, session.due_unix_s) == (2, 0.0)
    assert sessions.gaps_s(store.plan, store.records()) == 0


def test_a_run_without_the_time_of_its_end_is_damaged(store, record):
    record([1], 4)
    path = store.run_folders()[0] / "run.json"
    path.write_text(path.read_text().replace("2026-01-01T00:04:00+00:00", "yesterday"))
    with refused(RecordError):
        sessions.next_session(store)


def test_nothing_is_due_after_the_last_session(store, record):
    record(range(1, 6), 4)
    assert sessions.next_session(store) is None


def test_the_wait_ends_when_the_session_is_due(store, record):
    record([1, 2, 3], 4)
    session, now, lines = sessions.next_session(store), [START_S + 5 * 60], []

    def sleep(seconds):
        now[0] += seconds

    sessions.wait_for(session, lines.append, lambda: now[0], sleep)
    assert now[0] == session.due_unix_s
    assert len(lines) == 1
    sessions.wait_for(session, lines.append, lambda: now[0], sleep)
    assert len(lines) == 1


@pytest.mark.parametrize(
    "parameters",
    [
        {"sessions": 2, "session_gap": "soon"},
        {"session_gap": "10m"},
        {"sessions": 2, "part": "1/2", "seed": 1},
        {"sessions": 2, "stopping": "two-looks"},
        {"sessions": 11, "blocks": 10},
        {"sessions": 2, "session_gap": "366d"},
        {"sessions": 2, "session_gap": "9" * 400 + "d"},
    ],
)
def test_settings_that_do_not_go_together_are_refused(parameters):
    module = study_module("ambient_vs_no_mesh")
    with refused(UsageError):
        module.build(module.SETTINGS.read(parameters))


@pytest.mark.parametrize(("text", "seconds"), [("", 0), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1 d", 86_400)])
def test_a_gap_is_a_number_with_a_unit(text, seconds):
    module = study_module("ambient_vs_no_mesh")
    study = module.build(module.SETTINGS.read({"sessions": 3, "session_gap": text}))
    assert (study.sessions, study.session_gap_s) == (3, seconds)
