"""The published calibration, run once: every error rate, coverage and power against its target.

At its size three Monte-Carlo standard errors, sqrt(p q / n), tell an error rate of 0.05 from one of 0.10, and where a
fourth of the studies is simulated, 0.10 from a third of 0.42.
"""

import re

import numpy as np
import pytest
from pages import error_rates

from meshtrial import paths
from meshtrial.commands.calibrate import FULL
from meshtrial.design.responses import REGISTRY
from meshtrial.inference.gate import DeclaredContrast, judge, read_rules
from meshtrial.inference.rows import verdict_row
from meshtrial.stats import Family, Margin, analyse_family, blocks_for_difference
from meshtrial.stats.calibration import BLOCKS, CheckResult, recorded_noise, run_all
from meshtrial.stats.intervals import signed_rank_p_rows
from meshtrial.stats.ranktests import FloatArray
from meshtrial.stats.simulate import Noise, simulate

pytestmark = pytest.mark.calibration


@pytest.fixture(scope="module")
def rows() -> tuple[CheckResult, ...]:
    return run_all(1, FULL)


def of(rows: tuple[CheckResult, ...], check: str) -> list[CheckResult]:
    found = [r for r in rows if r.check.startswith(check)]
    assert found
    return found


def assert_passed(found: list[CheckResult]) -> None:
    failed = [f"{r.check}, {r.cell}: {r.observed:.4f} must be {r.rule} {r.nominal:.4f}" for r in found if not r.passed]
    assert not failed


def test_false_positives_in_every_kind_of_noise(rows: tuple[CheckResult, ...]) -> None:
    cells = of(rows, "1")
    assert_passed(cells)
    differences = [r for r in cells if r.cell.startswith("by difference")]
    cells = [r for r in cells if r not in differences]
    assert (len(cells), len(differences)) == (16, 6)
    # and the test is not merely conservative: its exact size at n = 10 is .0488
    assert np.mean([r.observed for r in cells]) == pytest.approx(0.0488, abs=0.004)


def test_coverage(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "2"))


def test_the_next_session_lies_in_its_prediction_interval(rows: tuple[CheckResult, ...]) -> None:
    cells = of(rows, "2 prediction")
    assert len(cells) == 5 * (4 + 1)
    assert_passed(cells)
    assert all(0.935 <= r.observed <= 0.97 for r in cells if "spread" in r.cell)


def test_changes_of_level_are_marked_as_seldom_and_found_as_often_as_said(rows: tuple[CheckResult, ...]) -> None:
    cells = of(rows, "level changes")
    assert len(cells) == 6 + 5
    assert_passed(cells)
    assert max(r.observed for r in cells if "false" in r.check) > 0.03
    assert_passed([r for r in rows if r.cell.startswith("level changes")])


def test_false_equivalence_and_the_family(rows: tuple[CheckResult, ...]) -> None:
    cells = of(rows, "3")
    assert_passed(cells)
    # at the margin the equivalence test is used to its size, or the check would prove nothing
    assert max(r.observed for r in cells if "low noise" in r.cell) > 0.03


def test_power(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "4"))


def test_the_sequential_order_fails(rows: tuple[CheckResult, ...]) -> None:
    sequential = next(r for r in of(rows, "5") if r.cell == "sequential order")
    assert sequential.observed > 0.10
    assert 0.25 < sequential.observed < 0.40
    peeking = next(r for r in of(rows, "5") if "every block" in r.cell)
    assert peeking.observed == pytest.approx(0.11, abs=0.02)


def test_stopping_rules(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "stopping"))


def test_equal_treatments_are_seldom_called_saturated(rows: tuple[CheckResult, ...]) -> None:
    cells = of(rows, "saturated")
    assert_passed(cells)
    assert max(r.observed for r in cells) > 0.002  # some are, or the cells would show nothing


def test_agreement(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "6"))


def test_the_known_limit_is_still_there(rows: tuple[CheckResult, ...]) -> None:
    # without it the simulation would not make dependent blocks
    assert_passed(of(rows, "limit"))


def test_the_same_seed_gives_the_same_numbers() -> None:
    first = run_all(3, 20)
    assert run_all(3, 20) == first
    assert run_all(4, 20) != first


def test_recorded_residuals() -> None:
    recorded = simulate(np.zeros(2), 30, 1, np.random.default_rng(8), noise=Noise())[0]
    assert_passed(list(recorded_noise(recorded, np.random.default_rng(9), 1000)))


def test_pooled_runs_without_blocks_would_not_pass() -> None:
    # pairing by blocks matters: without it, drift makes the unpaired differences dependent and wide
    rng = np.random.default_rng(10)
    values = simulate(np.log([1.0, 1.1]), BLOCKS, 2000, rng, noise=Noise(drift=1.5))
    paired = signed_rank_p_rows(values[:, :, 1] - values[:, :, 0]) <= 0.05
    shuffled = rng.permuted(values[:, :, 0], axis=1)
    broken = signed_rank_p_rows(values[:, :, 1] - shuffled) <= 0.05
    assert paired.mean() > 3 * broken.mean()


def test_whole_families_through_to_the_verdict() -> None:
    """In whole A/A studies of five treatments, how often is any difference called?"""
    names = ["none", "a", "b", "c", "d", "e", "none-aa"]
    studies = np.exp(simulate(np.zeros(7), BLOCKS, 400, np.random.default_rng(11)))
    called = twins = 0
    for study in studies:
        values = {name: study[:, i] for i, name in enumerate(names)}
        results = analyse_family(values, Family("none", twin="none-aa", margin=Margin(0.05)))
        called += any(r.verdict.label.different for r in results if r.role == "primary")
        twins += results[-1].verdict.label.different
    allowed = 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
    assert called / 400 <= allowed
    assert twins / 400 <= allowed


def test_real_effects_reach_their_verdict() -> None:
    names = ["none", "small", "large", "none-aa"]
    quiet = Noise(ar_sd=0.02, tail_sd=0.01, drift=0.05, shock_rate=0.0)
    studies = np.exp(simulate(np.log([1.0, 1.0, 1.3, 1.0]), BLOCKS, 200, np.random.default_rng(12), noise=quiet))
    said: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    for study in studies:
        values = {name: study[:, i] for i, name in enumerate(names)}
        for r in analyse_family(values, Family("none", twin="none-aa", margin=Margin(0.05))):
            said[r.treatment].append((r.verdict.label, r.verdict.qualifier))
    # By chance, 1 or 2 % of sound studies appear to have dependent blocks and get no verdict.
    withheld = sum(label == "dependent" for label, _ in said["large"])
    assert withheld <= 6
    assert said["large"].count(("slower", "material")) >= 198 - withheld
    assert sum(label == "equivalent" for label, _ in said["small"]) >= 170


def test_states_of_treatments_are_found_and_what_is_not_stays_in_its_bound(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "dependent blocks"))
    unlooked, called = (
        next(r.observed for r in rows if r.cell == cell)
        for cell in (
            "slow states of every treatment: called different, without the dependence test",
            "slow states of every treatment: called different",
        )
    )
    assert called < unlooked / 3


def test_regimes_of_one_treatment_leave_the_interval_sound(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "regimes"))


def test_a_plan_has_the_power_that_it_promises(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "power of a plan"))


def test_the_limits_are_as_large_as_the_documents_say(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "limit"))
    assert_passed(of(rows, "5 negative control"))


def test_slopes_are_called_less_often_because_they_ask_for_dependence(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "slopes"))
    shares = {r.cell: r.observed for r in rows if r.cell.startswith("slopes, random walk")}
    for blocks, kept in ((10, 0.75), (16, 0.4)):
        cell = f"slopes, random walk that grows with size, n = {blocks}"
        assert shares[f"{cell}: called"] < kept * shares[f"{cell}: p at most 5 %"]


def test_a_declared_level_keeps_the_error_rate_that_a_margin_loses_to_a_budget(rows: tuple[CheckResult, ...]) -> None:
    cells = {r.cell: r.observed for r in rows if r.cell.startswith("cost equal to a fixed budget")}
    followed, declared = (
        max(share for cell, share in cells.items() if cell.endswith(end)) for end in ("the baseline", "declared level")
    )
    assert followed > 3 * declared


GATE = read_rules(["slower"])


def gated(studies: FloatArray, margin: float) -> list[bool]:
    """Whether the gate fires for each study of a treatment, its baseline and the twin, with two primary responses.

    (studies, responses, blocks, treatments) of natural logs, through families, verdicts and rows to the gate.
    """
    names, responses = ("none", "istio", "none-aa"), [REGISTRY["latency_p50_s"], REGISTRY["latency_p99_s"]]
    declared = [DeclaredContrast("", response, "istio", "none") for response in responses]
    fired = []
    for study in np.exp(studies):
        rows = []
        for response, values in zip(responses, study, strict=True):
            by_name = {name: values[:, place] for place, name in enumerate(names)}
            found = analyse_family(by_name, Family("none", twin="none-aa", margin=Margin(margin)))
            rows += [verdict_row(one, response, {}, study="s", load="", exploratory=False) for one in found]
        fired.append(judge(rows, declared, GATE, 0.05).fired)
    return fired


def test_the_gate_keeps_its_error_rate_and_the_power_of_a_plan(rows: tuple[CheckResult, ...]) -> None:
    assert_passed(of(rows, "gate"))


def test_the_gate_over_a_thousand_comparisons_of_equal_treatments() -> None:
    rng = np.random.default_rng(13)
    studies = np.stack([simulate(np.zeros(3), BLOCKS, 1000, rng) for _ in range(2)], axis=1)
    fired = np.mean(gated(studies, 0.05))
    assert 0.01 < fired <= 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5


def test_the_gate_finds_the_regression_that_a_plan_promised() -> None:
    # sd of a block difference 10 %, margin 10 %; the other response stays as it is
    sd, effect = 0.1, np.log(1.1)
    blocks = blocks_for_difference(sd, effect)
    studies = np.random.default_rng(14).normal(0.0, sd / 2**0.5, (500, 2, blocks, 3))
    studies[:, 0, :, 1] += effect
    found = np.mean(gated(studies, 0.10))
    assert found >= 0.8 - 3 * (0.8 * 0.2 / 500) ** 0.5
    # as a difference and not by chance in the other response: half the effect is found far less often
    studies[:, 0, :, 1] -= effect / 2
    assert np.mean(gated(studies[:200], 0.10)) < found - 0.2


def test_the_pages_print_the_gate_as_it_is_measured(rows: tuple[CheckResult, ...]) -> None:
    page = (paths.CHECKOUT / "docs" / "how-to" / "ci-gate.md").read_text()

    def spread(check: str, cell: str, digits: int) -> str:
        found = [100 * r.observed for r in rows if r.check == check and r.cell.startswith(cell)]
        return f"{min(found):.{digits}f} to {max(found):.{digits}f} %"

    one, two, three = (spread("gate: false alarms", many, 1) for many in ("one", "two", "three"))
    power = spread("gate: power of a plan", "", 0)
    assert all(f"| {said} |" in page for said in (one, two, three))
    for families, name in ((1, "one primary response"), (2, "two"), (3, "three")):
        cell = f"primary responses: {families}, alpha 0.05, n = {BLOCKS}"
        month, twice = (
            next(100 * r.observed for r in rows if r.cell == one) for one in (cell, f"{cell}, two nights running")
        )
        (line,) = re.findall(rf"(?m)^\| {name} \|[^|]*\| (\S+) % \|[^|]* \| (\S+) % \|$", page)
        assert line == (f"{month:.0f}", f"{twice:.1f}")
    assert f"{power} of regressions" in " ".join(page.split())


def test_the_page_of_error_rates_is_what_is_measured(rows: tuple[CheckResult, ...]) -> None:
    assert error_rates.rates(rows) == (paths.CHECKOUT / error_rates.CALIBRATION).read_text()
