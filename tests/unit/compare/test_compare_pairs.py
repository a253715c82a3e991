"""Pairs of runs, and several generators as one run."""

import pytest
from refused import missing

BOTH = ("--baseline", "none/*.json", "--treatment", "istio=istio/*.json", "--metrics", "p50")


@pytest.mark.parametrize("how", ["order", "name"])
def test_six_pairs(six, how):
    answer = six.compare(*BOTH, "--pair-by", how)
    assert answer.out.startswith("6 blocks: the smallest possible p is 2/64 = 0.031.\n")
    record = answer.record
    assert record["verdicts"][0]["p"] == pytest.approx(2 / 64)  # every pair slower
    assert record["verdicts"][0]["n_blocks"] == 6
    assert record["paired"]
    assert "order-unknown" not in answer.out


def test_pairs_by_name_ignore_the_treatments_own_name(bench, make_result):
    for k in (1, 2, 10):
        bench.write(f"r/none-{k}.json", make_result(0.80 + k / 100, minute=k))
        bench.write(f"r/istio-{k}.json", make_result(1.00 + k / 100, minute=k))
    arguments = ("--baseline", "none=r/none-*.json", "--treatment", "istio=r/istio-*.json", "--metrics", "p50")
    pairs = {(run["block"], run["run"]) for run in bench.compare(*arguments, "--pair-by", "name").record["runs"]}
    assert ("10", "r/none-10.json") in pairs
    assert ("10", "r/istio-10.json") in pairs
    bench.write("r/istio-3.json", make_result(1.03))
    bench.refused(*arguments, "--pair-by", "name")


def test_pairs_by_label(bench, make_result):
    for k in (1, 2, 3):
        bench.write(f"none/{k}.json", make_result(0.80 + k / 100, Labels=f"none block {k}"))
        bench.write(f"istio/x{k}.json", make_result(1.00 + k / 100, Labels=f"Istio block {k}"))
    answer = bench.compare(*BOTH, "--pair-by", "label")
    assert answer.code == 0
    assert [run["block"] for run in answer.record["runs"]] == ["block-1", "block-2", "block-3"] * 2
    bench.treatment("none", [0.7])
    bench.refused(*BOTH, "--pair-by", "label")


def test_order_is_that_of_the_starts(bench, make_result):
    # The names are in another order than the runs.
    for name, minute, p50 in (("a", 30, 0.83), ("b", 20, 0.82), ("c", 10, 0.81)):
        bench.write(f"none/{name}.json", make_result(p50, minute=minute))
        bench.write(f"istio/{name}.json", make_result(p50 + 0.2, minute=minute + 1))
    answer = bench.compare(*BOTH, "--pair-by", "order")
    assert "paired by order of their start" in answer.flat
    assert [run["run"] for run in answer.record["runs"]][:3] == ["none/c.json", "none/b.json", "none/a.json"]


def test_pairs_in_which_one_treatment_always_ran_first_are_said(bench):
    bench.treatment("none", [0.80, 0.81, 0.82, 0.83, 0.84, 0.85])
    bench.treatment("istio", [0.90, 0.91, 0.92, 0.93, 0.94, 0.95], start=1)
    answer = bench.compare(*BOTH, "--pair-by", "order")
    assert missing(answer.warned("fixed-order"), [6, "none", "istio"]) == []
    # With one pair reversed, the order may have been drawn at random.
    data = bench.read("istio/run-3.json") | {"StartTime": "2026-11-21T02:05:30Z"}
    bench.write("istio/run-3.json", data)
    bench.write("none/run-3.json", bench.read("none/run-3.json") | {"StartTime": "2026-11-21T02:06:30Z"})
    assert not bench.compare(*BOTH, "--pair-by", "order").warned("fixed-order")


def test_order_needs_equal_numbers(six):
    (six.folder / "istio/run-6.json").unlink()
    six.refused(*BOTH, "--pair-by", "order")
    assert six.compare(*BOTH).flat.startswith("6 against 5 runs, not paired: the smallest possible p is 2/462")


def histogram(r, counts):
    """Buckets (0, r], (r, 2r], (2r, 3r] with these counts."""
    data = [{"Start": i * r, "End": (i + 1) * r, "Percent": 0, "Count": n} for i, n in enumerate(counts) if n]
    total = sum(counts)
    return {
        "Count": total,
        "Min": data[0]["Start"] + r / 2,
        "Max": data[-1]["End"],
        "Sum": r,
        "Avg": data[0]["End"],
        "Data": data,
    }


def test_generators_of_one_run_are_pooled(bench, make_result):
    for treatment in ("none", "istio"):
        for run in (1, 2):
            for name, counts in (("g1", (300, 0, 0)), ("g2", (0, 0, 300))):
                minute = run + 10 * (treatment == "istio")
                data = make_result(1, minute=minute, DurationHistogram=histogram(0.001, counts), RetCodes={"200": 300})
                # Change the files' bytes without changing their content.
                bench.write(f"{treatment}/{run}/{name}.json", data | {"Labels": f"{treatment} {run} {name}"})
    both = ("--baseline", "none=none/*/*.json", "--treatment", "istio=istio/*/*.json")
    arguments = (*both, "--merge", "--metrics", "p75")
    answer = bench.compare(*arguments)
    assert answer.code == 0, answer.err
    runs = answer.record["runs"]
    assert [run["run"] for run in runs] == ["none/1", "none/2", "istio/1", "istio/2"]
    # 600 requests: 300 below 1 ms, 300 in (2, 3] ms; p75 in the middle of the latter. A mean of p75s would be 1.8 ms.
    assert runs[0]["responses"]["latency_p75_s"] == pytest.approx(0.0025)
    assert runs[0]["load"]["requested_rps"] == 200
    assert runs[0]["load"]["threads"] == 8

    other = make_result(
        1, minute=1, DurationHistogram=histogram(0.0001, (300, 1, 1)), RetCodes={"200": 302}, Resolution=1e-4
    )
    bench.write("istio/1/g1.json", other)
    bench.refused(*arguments, "--force")


def test_a_log_and_its_result_are_not_two_generators(bench, make_result):
    line = '{"latency":0.001,"timestamp":1,"thread":0,"iter":0,"ok":true,"details":"200"}\n'
    for treatment in ("none", "istio"):
        for run in (1, 2):
            bench.write(f"{treatment}/{run}/a.json", make_result(1))
            bench.write(f"{treatment}/{run}/a.log", line)
    bench.refused("--baseline", "none=none/*/*", "--treatment", "istio=istio/*/*", "--merge")
