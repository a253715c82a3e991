"""`meshtrial plan`: numbers that follow from the noise that the records contain."""

import dataclasses
import json
import math
import re
import statistics

import polars as pl
import pytest
from commandline import meshtrial
from refused import missing
from scipy.stats import chi2
from statsmodels.stats.power import TTestPower

from meshtrial import stats
from meshtrial.design.load import FixedRate
from meshtrial.design.plan import make_plan
from meshtrial.records.store import StudyStore

BLOCKS = 8
# Half of the blocks 10 % above, half 10 % below (logs): sd = 0.1 sqrt(8/7).
NOISE = 0.1
SD = NOISE * math.sqrt(BLOCKS / (BLOCKS - 1))


def level(treatment, block):
    sign = 1 if block % 2 else -1
    return {"none": 0.0, "none-aa": 0.2 * NOISE * sign, "node-proxy": 0.3 + NOISE * sign}[treatment]


def requests(log_level, within):
    """Four slices of 200 equal requests each, alternately above and below the run's level."""
    parts = [
        pl.DataFrame(
            {"slice": [k] * 200, "latency_s": [0.01 * math.exp(log_level + within * (-1) ** k)] * 200, "ok": True}
        )
        for k in range(4)
    ]
    return pl.concat(parts)


@pytest.fixture
def record_study(tmp_path, make_study, make_record):
    def make(blocks=BLOCKS, slices=1, within=0.0, shared=False, **more):
        plan = make_plan(make_study(blocks=blocks, loads=(FixedRate(100, 4, 2, slices=slices),), **more))
        store = StudyStore.create(tmp_path, plan, {})
        for run in plan.runs:
            found = level(run.treatment, run.repetition)
            record = make_record(plan, run, {"latency_p50_s": 0.01 * math.exp(found)})
            way = 1 if shared or run.treatment == "none" else -1
            frame = requests(found, way * within) if slices > 1 else None
            store.finish(store.begin(run.run_id, 1), dataclasses.replace(record, load=run.load), frame)
        return store.path

    return make


@pytest.fixture
def call(tmp_path):
    def run(*arguments):
        code, out, err = meshtrial("plan", *arguments)
        path = tmp_path / "plan.json"
        return code, " ".join(out.split()), err, json.loads(path.read_text()) if path.exists() else {}

    return run


def test_blocks_for_a_margin(record_study, call, tmp_path):
    path = record_study()
    code, out, err, made = call("--from", path, "--margin", "5%", "--json", tmp_path / "plan.json")
    assert (code, err) == (0, "")
    (load,) = made["loads"]
    need, twin = load["needs"]
    assert need["sd"] == pytest.approx(SD)
    # Eight blocks bound the noise by 1.22 times their own with a confidence of 70 %: sqrt(7 / 4.671).
    half, careful = math.log(1.05), SD * math.sqrt(7 / chi2.ppf(0.3, 7))
    t_test = TTestPower().solve_power(half / careful, alpha=0.05, power=0.8)
    assert need["difference"] == stats.blocks_for_difference(careful, half)
    assert 0 <= need["difference"] - math.ceil(t_test / 0.955) <= 1  # the exact test's level is a little below 5 %
    # ((1.6449 + 1.2816) sd / margin)^2 / .955
    assert need["equivalence"] == stats.blocks_for_equivalence(careful, half)
    assert 0 <= need["equivalence"] - math.ceil(((1.6449 + 1.2816) * careful / half) ** 2 / 0.955) <= 2
    assert (twin["treatment"], twin["twin"], twin["sd"]) == ("none-aa", True, pytest.approx(0.2 * SD))
    # The quiet A/A pair is not the limit.
    assert load["difference_blocks"] == need["difference"]
    assert missing(out, [need["difference"], "node-proxy", "none", 8, "10.7", 5]) == []


def test_the_smallest_effect_that_the_blocks_see(record_study, call, tmp_path):
    *_, made = call("--from", record_study(), "--margin", "5%", "--json", tmp_path / "plan.json")
    visible = made["loads"][0]["needs"][0]["visible"]
    # Found with power .8 in 8 blocks: the t-test's effect at 8 * .955 observations and the level that 8 blocks reach.
    effect = TTestPower().solve_power(nobs=BLOCKS * 0.955, alpha=10 / 256, power=0.8)
    assert visible == pytest.approx(math.expm1(effect * SD), rel=1e-3)


def test_below_the_floor_nothing_is_visible(record_study, call, tmp_path):
    json_file = ("--json", tmp_path / "plan.json")
    for blocks, contrasts in ((4, 1), (5, 5)):
        given = ("--margin", "5%", "--contrasts", contrasts)
        _, out, _, made = call("--from", record_study(blocks=blocks), *given, *json_file)
        assert made["loads"][0]["needs"][0]["visible"] is None
        assert " none below 6 blocks " in out  # a whole cell
    assert "No fewer than 6 blocks" in out
    assert "no fewer than 7 can show equivalence" in out


def test_time_is_that_of_the_recorded_runs(record_study, call, tmp_path):
    # A run starts every 10 s; a block has three treatments.
    _, out, _, made = call("--from", record_study(), "--margin", "5%", "--json", tmp_path / "plan.json")
    load = made["loads"][0]
    assert load["seconds_per_block"] == pytest.approx(30, abs=10)  # the last run has no successor
    assert load["difference_s"] == pytest.approx(load["difference_blocks"] * load["seconds_per_block"])
    assert re.search(r"A block of 3 treatments takes \d+ s here", out)


def test_margins(record_study, call, tmp_path):
    path = record_study()
    by_default = call("--from", path, "--json", tmp_path / "plan.json")[3]
    assert by_default["margin"] == {"relative": 0.05, "floor": 5e-5}  # as in the study
    # 0.5 ms of 10 ms is 5 %.
    absolute = call("--from", path, "--margin", "0.5ms", "--json", tmp_path / "plan.json")[3]
    assert absolute["loads"][0]["needs"][0]["margin"] == pytest.approx(0.05)
    for wrong in ("5", "x%", "0%", "-5%"):
        code, _, err, _ = call("--from", path, f"--margin={wrong}")
        assert code == 2
        assert missing(err, ["margin", wrong, "5%,0.2ms"]) == []


def test_a_month_of_nights(record_study, call, tmp_path):
    path = record_study(primary=("latency_p50_s", "latency_p99_s"))
    given = ("--margin", "50%", "--json", tmp_path / "plan.json")
    _, out, _, made = call("--from", path, *given, "--nights", 30)
    gate = made["nights"]
    # Two families at half of 5 %; 30 nights without an alarm have the probability .95^30 = .215.
    assert (gate["families"], gate["false_alarm_one_night"]) == (2, 0.05)
    assert gate["false_alarm_any_night"] == pytest.approx(1 - 0.95**30)
    assert gate["false_alarm_twice_running"] == pytest.approx(29 * 0.05**2)
    # Nights with at most .00171 of alarms: 2 families at .00171 / 2 in one direction. 2^-10 is the first p-value below.
    assert gate["alpha"] == pytest.approx(1 - 0.95 ** (1 / 30))
    assert (
        gate["blocks"]
        == 11
        == call("--from", path, *given, "--alpha", gate["alpha"])[3]["loads"][0]["difference_blocks"]
    )
    assert missing(out, [30, "5.0%", "79%", "alpha=0.0017", 11]) == []
    assert "nights" not in call("--from", path, *given)[3]
    code, _, err, _ = call("--from", path, "--nights", -1)
    assert (code, missing(err, ["nights", -1])) == (2, [])


def test_a_study_that_declared_differences_is_planned_by_them(record_study, call, tmp_path):
    path = record_study(scales={"latency_p50_s": "difference"})
    _, out, _, made = call("--from", path, "--margin", "5%", "--json", tmp_path / "plan.json")
    need = made["loads"][0]["needs"][0]
    shares = [math.exp(level("node-proxy", block)) - 1 for block in range(BLOCKS)]
    sd = statistics.stdev(shares)
    assert (need["scale"], need["sd"]) == ("difference", pytest.approx(sd))
    careful = stats.upper_sd(sd, BLOCKS)
    assert need["difference"] == stats.blocks_for_difference(careful, 0.05, jointly=True)
    # A margin in percent applies to ratios, whichever scale carries the verdict.
    logs = stats.upper_sd(SD, BLOCKS)
    assert need["equivalence"] == stats.blocks_for_equivalence(logs, math.log(1.05))
    assert need["visible"] == pytest.approx(stats.detectable_effect(BLOCKS, jointly=True) * sd)
    assert "a block's difference as a share of the baseline" in out


def test_one_slice_says_so(record_study, call):
    out = call("--from", record_study())[1]
    assert "one slice per deployment" in out
    assert "record a pilot" in out


def test_slices(record_study, call, tmp_path):
    # One treatment 0.05 above where the other is below: half of 4 * .1^2 / 3; between is what is left of sd^2 / 2.
    path = record_study(slices=4, within=0.05)
    *_, made = call("--from", path, "--margin", "5%", "--json", tmp_path / "plan.json")
    load = made["loads"][0]
    slices = load["slices"]
    within = 4 * 0.1**2 / 3 / 2
    assert slices["within"] == pytest.approx(within)
    assert slices["between"] == pytest.approx(SD**2 / 2 - within / 4)
    assert slices["inner_s"] == 2
    assert slices["outer_s"] == pytest.approx(load["seconds_per_block"] / 3 - 8)
    ratio = slices["outer_s"] / 2 * within / slices["between"]
    assert slices["best"] == min(8, max(1, math.ceil(math.sqrt(ratio))))
    # With the recorded number of slices the blocks are those of the recorded noise.
    assert slices["options"]["4"][0] == load["difference_blocks"]
    assert slices["options"]["1"][0] > load["difference_blocks"]
    for count, (blocks, seconds) in slices["options"].items():
        # a block has two runs; three treatments are deployed and measured for n slices of 2 s
        sd = stats.upper_sd(math.sqrt(2 * (slices["between"] + within / int(count))), BLOCKS)
        assert blocks == stats.blocks_for_difference(sd, math.log(1.05))
        assert seconds == pytest.approx(blocks * 3 * (slices["outer_s"] + int(count) * 2))


def test_what_deployments_share_from_slice_to_slice_is_no_reason_for_more_of_them(record_study, call, tmp_path):
    path = record_study(slices=4, within=0.05, shared=True)
    slices = call("--from", path, "--json", tmp_path / "plan.json")[3]["loads"][0]["slices"]
    assert slices["within"] == pytest.approx(0, abs=1e-12)
    assert slices["best"] == 1


def test_no_more_than_twice_the_recorded_slices_are_advised(record_study, call, tmp_path):
    path = record_study(slices=4, within=0.105)
    slices = call("--from", path, "--json", tmp_path / "plan.json")[3]["loads"][0]["slices"]
    assert slices["between"] == 0
    assert slices["best"] == 8


def test_bad_usage(record_study, call, tmp_path):
    path = record_study()
    for arguments, names in (
        (("--from", tmp_path / "absent"), [tmp_path / "absent"]),
        (("--from", path, "--response", "p99"), ["--response", "p99"]),
        (("--from", path, "--power", "1"), ["--power", 1]),
        (("--from", path, "--contrasts", "0"), ["--contrasts", 0]),
    ):
        code, out, err, _ = call(*arguments)
        assert (code, out) == (2, "")
        assert missing(err, names) == []
