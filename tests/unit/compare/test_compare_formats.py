"""`meshtrial compare` on files of other load generators, through the command line: verdicts, warnings and refusals."""

import json
import re
from typing import Any

import pytest
from refused import missing

from meshtrial import paths

FIXTURES = paths.CHECKOUT / "tests" / "fixtures" / "formats"
LOW = [0.80, 0.81, 0.82, 0.83, 0.84, 0.85]
HIGH = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05]


def wrk2(p50_ms: float, failed: int = 0) -> str:
    """Return the text with another p50; its spectrum and its mean change with it."""
    text = (FIXTURES / "wrk2.txt").read_text().replace("responses: 234", f"responses: {failed}")
    text = re.sub(r"(?m)^ +(\d+\.\d{3})(?= +[01]\.\d{6} )", lambda row: f"{float(row[1]) * p50_ms / 1.099:12.3f}", text)
    return text.replace("1.177,", f"{p50_ms:.3f},")


def k6(p50_ms: float, **more: Any) -> str:
    whole = json.loads((FIXTURES / "k6-summary-export.json").read_text())
    whole["metrics"]["http_req_duration{expected_response:true}"].update(med=p50_ms, **{"p(90)": 3, "p(95)": 3})
    whole["metrics"]["http_req_failed"]["value"] = 0.0
    for name, count in more.items():
        whole["metrics"][name] = {"count": count, "rate": count / 3.003}
    return json.dumps(whole)


def vegeta(p50_ms: float, minute: int) -> str:
    """Requests with equal latencies, except for the first."""
    lines = []
    for k in range(40):
        latency = round(p50_ms * 1e6) + k
        stamp = f"2026-11-23T09:{minute:02d}:00.{k:02d}Z"
        lines.append(json.dumps({"attack": f"block-{minute // 2}", "seq": k, "code": 200, "timestamp": stamp,
                                 "latency": latency, "bytes_out": 0, "bytes_in": 5, "error": ""}))  # fmt: skip
    return "\n".join(lines) + "\n"


def hey(p50: str) -> str:
    text = (FIXTURES / "hey.txt").read_text().replace("50%% in 0.0005", f"50%% in {p50}")
    return text.replace("75%% in 0.0006", "75%% in 0.0009")


def both(bench, form, suffix=""):
    for name, levels in (("none", LOW), ("istio", HIGH)):
        for k, level in enumerate(levels):
            bench.write(f"{name}/{k}{suffix}", form(level))


ASKED = ("--baseline", "none", "--treatment", "istio", "--metrics", "p50", "--sample-floor", "1")


def test_six_wrk2_texts_a_side_are_judged_and_what_they_do_not_say_is_told(bench):
    both(bench, wrk2, ".txt")
    answer = bench.compare(*ASKED)
    assert (answer.code, answer.err) == (0, "")
    record = answer.record
    (row,) = record["verdicts"]
    assert (row["verdict"], row["qualifier"]) == ("slower", "material")
    assert row["p"] == pytest.approx(2 / 924)
    assert row["baseline_value"] == pytest.approx(0.825e-3)
    run = record["runs"][0]
    assert (run["kind"], run["start_unix_s"], run["load"]["threads"]) == ("wrk2", None, 2)
    assert run["responses"]["latency_p50_s"] == pytest.approx(0.80e-3)
    assert "note: none/0.txt and 11 more: percentiles of wrk2's histogram" in answer.flat
    assert missing(answer.warned("settings-unknown"), ["wrk2", "rate", "payload"]) == []
    assert missing(answer.warned("start-unknown"), [12, "none/0.txt"]) == []


def test_most_runs_of_failed_requests_are_no_latency(bench):
    both(bench, wrk2)
    for k, level in enumerate(HIGH):
        bench.write(f"istio/{k}", wrk2(level, failed=234))
    answer = bench.compare(*ASKED)
    assert answer.record["verdicts"][0]["verdict"] == "invalid"
    assert missing(answer.warned("errors"), ["istio/0", "9.0%"]) == []  # 234 of 2601


def test_a_percentile_that_the_form_lacks_is_told_with_the_way_to_it(bench):
    both(bench, k6)
    answer = bench.compare(*ASKED[:-4], "--metrics", "p50,p99", "--sample-floor", "1")
    assert answer.code == 0
    assert missing(answer.warned("not-reported"), ["p99", "none/0", "k6"]) == []
    few = bench.compare(*ASKED[:-4], "--metrics", "p50,p99", "--sample-floor", "50")
    assert missing(few.warned("not-reported"), [5000, 192]) == []


def test_iterations_that_k6_dropped_are_a_missed_rate(bench):
    both(bench, k6)
    for k, level in enumerate(HIGH):
        bench.write(f"istio/{k}", k6(level, dropped_iterations=64))
    answer = bench.compare(*ASKED)
    assert missing(answer.warned("rate-missed"), ["istio/0", "75.0%"]) == []
    assert answer.record["verdicts"][0]["verdict"] == "saturated"


def test_other_users_are_another_load(bench):
    both(bench, k6)
    text = (bench.folder / "istio/0").read_text().replace('"min": 2, "max": 2', '"min": 3, "max": 3')
    bench.write("istio/0", text)
    bench.refused(*ASKED)


def test_two_generators_or_two_forms_of_one_are_not_compared(bench):
    both(bench, k6)
    bench.write("istio/0", wrk2(1.0))
    bench.refused(*ASKED)
    bench.write("istio/0", (FIXTURES / "k6-samples.json").read_text())
    bench.refused(*ASKED)


def test_the_order_is_checked_where_files_say_when_they_began(bench):
    for k, level in enumerate(LOW):
        bench.write(f"none/{k}", vegeta(level, 2 * k))
        bench.write(f"istio/{k}", vegeta(level + 0.2, 2 * k + 30))
    answer = bench.compare(*ASKED)
    assert answer.warned("sequential-order").startswith("all runs of none began before the first of istio")
    assert "start-unknown" not in answer.out
    paired = bench.compare(*ASKED[:-4], "--metrics", "p50", "--sample-floor", "1", "--pair-by", "order")
    assert paired.warned("fixed-order").startswith("in each of 6 pairs none ran before istio")
    # Every run is slower than the previous one, and treatments alternate.
    for k, level in enumerate([0.8, 0.9, 1.0, 1.1, 1.2, 1.3]):
        bench.write(f"none/{k}", vegeta(level, 2 * k))
        bench.write(f"istio/{k}", vegeta(level + 0.05, 2 * k + 1))
    assert re.search(r"\+\d", bench.compare(*ASKED).warned("drift"))


def test_pairs_by_the_attacks_name(bench):
    for k, level in enumerate(LOW):
        bench.write(f"none/{k}", vegeta(level, 2 * k))
        bench.write(f"istio/{5 - k}", vegeta(level + 0.2, 2 * k + 1))
    record = bench.compare(*ASKED, "--pair-by", "label").record
    assert record["pairing"] == "paired by label"
    assert {run["block"] for run in record["runs"]} == {f"block-{k}" for k in range(6)}


def test_nothing_is_called_within_the_digits_that_a_tool_prints(bench):
    # 0.5 and 0.6 ms, each known to 0.1 ms, so rounding alone may explain the difference.
    for k in range(6):
        bench.write(f"none/{k}.txt", hey("0.0005").replace("199.6800", f"199.68{k:02d}"))
        bench.write(f"istio/{k}.txt", hey("0.0006").replace("199.6800", f"199.69{k:02d}"))
    answer = bench.compare(*ASKED)
    (row,) = answer.record["verdicts"]
    assert row["sentence"] == "inconclusive (the buckets are too coarse to tell)"
    assert "[bucket]" in answer.out


def test_a_csv_is_told_by_its_columns(bench):
    for k in range(2):
        for name in ("none", "istio"):
            text = (FIXTURES / "hey.csv").read_text().replace("0.0004,", f"0.000{3 + k + 2 * (name == 'istio')},")
            bench.write(f"{name}/{k}.csv", text)
    answer = bench.compare("--baseline", "none/*.csv", "--treatment", "istio=istio/*.csv", *ASKED[4:])
    assert answer.code == 0, answer.err
    bench.write("none/2.csv", "run,treatment,response,value\n")
    bench.refused("--baseline", "none/*.csv", "--treatment", "istio=istio/*.csv", *ASKED[4:])
