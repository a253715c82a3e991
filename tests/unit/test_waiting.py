"""Waiting: its end, its return value, and no unnecessary sleep."""

import time

import pytest

from meshtrial import waiting


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record pauses on a clock that only they advance."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    return pauses


def test_the_first_result_that_is_done_is_returned(slept):
    assert waiting.until(lambda: "here", 1.0, 0.5) == "here"
    assert slept == []
    looks = iter([1, 3, 5, 7])
    assert waiting.until(lambda: next(looks), 10.0, 0.5, lambda seen: seen >= 5) == 5
    assert slept == [0.5, 0.5]


def test_the_last_look_comes_back_when_the_time_is_over(slept):
    looks = iter(range(100))
    assert waiting.until(lambda: next(looks), 1.0, 0.5, lambda seen: False) == 3
    assert slept == [0.5, 0.5, 0.5]
    assert waiting.until(lambda: "", 0.0, 0.5) == ""


def test_a_look_that_raises_ends_the_waiting(slept):
    with pytest.raises(ZeroDivisionError):
        waiting.until(lambda: 1 / 0, 10.0, 0.5)
    assert slept == []


@pytest.mark.parametrize(("patience_s", "may_pass", "tries"), [(10.0, True, 4), (0.5, True, 3), (10.0, False, 1)])
def test_what_may_pass_is_tried_again_until_patience_is_over(slept, patience_s, may_pass, tries):
    answers = iter([OSError("1"), OSError("2"), OSError("3"), "made"])
    tried = []

    def work() -> str:
        tried.append(next(answers))
        if isinstance(tried[-1], OSError):
            raise tried[-1]
        return str(tried[-1])

    if tries == 4:
        assert waiting.retried(work, lambda error: may_pass, patience_s) == "made"
    else:
        with pytest.raises(OSError, match=str(tries)):
            waiting.retried(work, lambda error: may_pass, patience_s)
    assert len(tried) == tries
