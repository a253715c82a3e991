"""`meshtrial compare` on files, through the command line."""

import gzip
import html
import json
import math
import re

import pytest
from refused import missing

BOTH = ("--baseline", "none/*.json", "--treatment", "istio=istio/*.json", "--metrics", "p50")


def test_six_a_side_completely_apart(six):
    answer = six.compare(*BOTH)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("6 against 6 runs, not paired: the smallest possible p is 2/924 = 0.0022.\n")
    record = answer.record
    (row,) = record["verdicts"]
    assert row["p"] == pytest.approx(2 / math.comb(12, 6), abs=1e-15)
    # Medians 0.825 and 1.025 ms; the 36 ratios lie between 1.00/0.85 and 1.05/0.80.
    assert row["baseline_value"] == pytest.approx(0.825e-3)
    assert row["treatment_value"] == pytest.approx(1.025e-3)
    assert 1.00 / 0.85 < row["ci_low"] < row["ratio"] < row["ci_high"] < 1.05 / 0.80
    assert (row["verdict"], row["qualifier"]) == ("slower", "material")
    assert record["smallest_p"] == {"istio": pytest.approx(2 / 924)}
    assert "slower (material)" in answer.out
    assert "widened" in answer.flat
    # Every file has the start of its run, and treatments alternated, so there is no warning about the order.
    assert not any(answer.warned(code) for code in ("order-unknown", "sequential-order", "mostly-before"))
    assert max(len(line) for line in answer.out.splitlines()) <= 100


def test_three_a_side_cannot_go_below_a_tenth(bench):
    bench.treatment("none", [0.80, 0.81, 0.82])
    bench.treatment("istio", [1.00, 1.01, 1.02], start=1)
    answer = bench.compare(*BOTH)
    assert answer.code == 0
    assert answer.flat.startswith("3 against 3 runs, not paired: the smallest possible p is 2/20 = 0.10.")
    assert "Nothing below 0.10 is possible" in answer.flat
    assert "at least 4 runs of each treatment" in answer.flat
    assert "inconclusive (at least 4 runs of each treatment" in answer.flat
    assert "slower" not in answer.out


def test_one_file_against_one_file_is_refused_even_by_force(bench):
    bench.treatment("none", [0.8])
    bench.treatment("istio", [1.0])
    for more in ((), ("--force",)):
        bench.refused(*BOTH, *more)


# Invalid results and logs are tested with load/result and load/accesslog.


def test_a_pattern_without_files(six):
    six.refused("--baseline", "none/*.json", "--treatment", "x=nothing/*.json")
    (six.folder / "empty").mkdir()
    for named in ("x=empty", f"x={'long' * 100}/*.json", "x=~nobody at home/*.json", "x=none/run-1.json/*.json"):
        six.refused("--baseline", "none/*.json", "--treatment", named)
    six.refused("--baseline", "none/absent.json", "--treatment", "istio/*.json")


@pytest.mark.parametrize("folder", ["bracket [1]", "a*b", "what?", "{x}", "Ergebnisse müßig 結果", "a=b", "[!1]"])
def test_a_name_that_is_there_is_no_pattern(bench, folder):
    for k, level in enumerate((0.80, 0.81, 0.82, 0.83)):
        bench.treatment(f"{folder}/{k}/none", [level], start=4 * k)
        bench.treatment(f"{folder}/{k}/istio {folder}", [level + 0.2], start=4 * k + 1)
        # A file that the name would match if it were a pattern.
        bench.write(f"bracket 1/{k}/none/run-1.json", "nothing")
        bench.write(f"axb/{k}/none/run-1.json", "nothing")
    inside = [
        ("none=" + folder + "/*/none/*.json", f"istio={folder}/*/istio {folder}/run-[0-9].json"),
        (f"none={bench.folder}/{folder}/**/none/run-1.json", f"istio={folder}/[0-9]/istio*/run-?.json"),
    ]
    for baseline, treatment in inside:
        answer = bench.compare("--baseline", baseline, "--treatment", treatment, "--metrics", "p50")
        assert answer.code == 0, answer.err
        (row,) = answer.record["verdicts"]
        assert (row["baseline"], row["treatment"]) == ("none", "istio")
        assert row["baseline_value"] == pytest.approx(0.815e-3)


def test_a_file_and_a_folder_are_taken_by_their_own_names(bench):
    for k in range(3):
        bench.treatment(f"all/run[{k}]", [0.8 + k / 100], start=k)
        bench.treatment("mesh [1]", [1.0, 1.01, 1.02], start=1)
    files = [f"all/run[{k}]/run-1.json" for k in range(3)]
    answer = bench.compare("--baseline", *files, "--treatment", "mesh [1]", "--metrics", "p50")
    assert answer.code == 0, answer.err
    assert [row["treatment"] for row in answer.record["verdicts"]] == ["mesh [1]"]


def test_a_pattern_that_matches_is_one_also_with_an_equals_sign_in_it(bench):
    for mode, level in (("A_kube-proxy", 0.8), ("B_cilium", 1.0)):
        for k in range(4):
            bench.treatment(f"mode={mode}/load=L1/run={k}", [level + k / 100], start=k)
    modes = ("mode=A_kube-proxy/load=L1/run=*/run-1.json", "mode=B_cilium/load=L1/run=*/run-1.json")
    unnamed = bench.compare("--baseline", modes[0], "--treatment", modes[1], "--metrics", "p50")
    named = bench.compare("--baseline", f"A={modes[0]}", "--treatment", f"B={modes[1]}", "--metrics", "p50")
    assert (unnamed.code, named.code) == (0, 0)
    for answer, names in ((unnamed, ("baseline", "treatment")), (named, ("A", "B"))):
        (row,) = answer.record["verdicts"]
        assert (row["baseline"], row["treatment"]) == names
        assert (row["baseline_value"], row["p"]) == (pytest.approx(0.815e-3), pytest.approx(2 / 70))


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"RequestedQPS": "200", "ActualQPS": 200.0}, "rate"),
        ({"NumThreads": 8}, "connections"),
        ({"DisableFastClient": True}, "client"),
        ({"Payload": "eHh4eHg="}, "payload"),
        ({"DisableKeepAlive": True}, "keep-alive"),
    ],
)
def test_another_load_is_refused_by_name_and_forced_with_a_warning(bench, changes, setting):
    bench.treatment("none", [0.80, 0.81, 0.82, 0.83], Payload="eHg=")
    bench.treatment("istio", [1.00, 1.01, 1.02, 1.03], start=1, **({"Payload": "eHg="} | changes))
    assert missing(bench.refused(*BOTH), [setting, "none/run-1.json", "istio/run-1.json"]) == []
    forced = bench.compare(*BOTH, "--force")
    assert forced.code == 0
    assert missing(forced.warned("different-settings"), [setting]) == []


def test_a_copy_is_found_packed_and_indented_too(six):
    data = json.loads((six.folder / "istio/run-1.json").read_text())
    (six.folder / "istio/again.json").write_text(json.dumps(data, indent=4))
    (six.folder / "istio/packed.json.gz").write_bytes(gzip.compress(json.dumps(data, indent=1).encode()))
    (six.folder / "istio/run-7.json").write_bytes((six.folder / "istio/run-1.json").read_bytes())
    arguments = ("--baseline", "none/*.json", "--treatment", "istio=istio/*", "--metrics", "p50")
    said = six.refused(*arguments)
    assert missing(said, ["istio/again.json", "istio/packed.json.gz", "istio/run-7.json"]) == []
    assert six.compare(*arguments, "--force").code == 0


def test_most_of_one_treatment_before_the_other_is_said(bench, make_result):
    # One pair of the runs changed places: of 36 pairs of runs 35 are in one order, p = 2 * 2/924.
    for treatment, minutes in (("none", (0, 1, 2, 3, 4, 6)), ("istio", (5, 7, 8, 9, 10, 11))):
        for k, minute in enumerate(minutes):
            bench.write(f"{treatment}/{k}.json", make_result(0.8 + k / 100 + (treatment == "istio") / 5, minute=minute))
    answer = bench.compare(*BOTH)
    assert missing(answer.warned("mostly-before"), ["none", "istio", "97%", 0.0043]) == []
    assert not answer.warned("sequential-order")
    assert not answer.warned("order-unknown")


def test_a_drift_is_no_noise_where_one_treatment_ran_mostly_before_the_other(bench):
    # One run every two minutes, each slower than the previous one; the second treatment starts in the middle of the
    # first.
    bench.treatment("none", [0.80 + k / 100 for k in range(12)])
    bench.treatment("istio", [0.83 + k / 100 for k in range(12)], start=7)
    answer = bench.compare(*BOTH)
    assert answer.warned("mostly-before")
    assert "cannot be separated" in answer.warned("drift")


def test_an_order_that_some_files_do_not_say_is_unknown(six):
    data = json.loads((six.folder / "none/run-1.json").read_text())
    del data["StartTime"]
    six.write("none/run-1.json", data)
    answer = six.compare(*BOTH)
    assert missing(answer.warned("start-unknown"), [1, 12, "none/run-1.json"]) == []
    assert answer.warned("order-unknown")


def test_gzip_and_several_treatments(six):
    six.treatment("linkerd", [0.70, 1.00, 0.65, 1.10, 0.81, 0.95], start=1, step=3)
    for path in (six.folder / "linkerd").iterdir():
        path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    answer = six.compare(*BOTH, "--treatment", "linkerd")
    assert answer.code == 0
    assert "(istio, linkerd)" in answer.flat
    assert "0.0043 corrected over 2 contrasts" in answer.flat  # 2 x 2/924
    istio, linkerd = answer.record["verdicts"]
    assert istio["p_adjusted"] == pytest.approx(4 / 924)
    assert istio["verdict"] == "slower"
    assert linkerd["verdict"] == "inconclusive"
    assert linkerd["sentence"].startswith("inconclusive (a new study of about ")
    assert linkerd["sentence"].endswith(" runs of each treatment)")


def test_nighthawk_counts_as_strings(bench, make_result):
    for treatment, level in (("none", 0.8), ("istio", 1.0)):
        for k in range(4):
            data = make_result(level + k / 100, minute=2 * k + (treatment == "istio"))
            histogram = data["DurationHistogram"]
            histogram["Count"] = str(histogram["Count"])
            for bucket in histogram["Data"]:
                bucket["Count"] = str(bucket["Count"])
            bench.write(f"{treatment}/{k}.json", data)
    answer = bench.compare(*BOTH)
    assert answer.code == 0
    assert {run["kind"] for run in answer.record["runs"]} == {"nighthawk"}
    assert answer.record["verdicts"][0]["p"] == pytest.approx(2 / 70)


def access_logs(bench, apart_ns: int) -> None:
    """Four runs per side, this far apart."""
    for begin, (treatment, latency) in enumerate((("none", 0.001), ("istio", 0.002))):
        for k in range(4):
            request = {"latency": latency + k * 1e-5, "thread": 0, "ok": True}
            start = 10**18 + (4 * begin + k) * apart_ns
            lines = (request | {"timestamp": start + i * 10**7, "iter": i} for i in range(200))
            bench.write(f"{treatment}/{k}.log", "".join(json.dumps(line) + "\n" for line in lines))


def test_access_logs_are_exact_and_their_settings_unknown(bench):
    access_logs(bench, 0)
    answer = bench.compare("--baseline", "none/*.log", "--treatment", "istio/*.log", "--metrics", "p50")
    assert answer.code == 0
    assert "settings-unknown" in answer.out
    (row,) = answer.record["verdicts"]
    assert row["baseline_value"] == pytest.approx(0.001015)  # between the second and the third of four
    bench.treatment("mixed", [1.0, 1.1, 1.2])
    bench.refused("--baseline", "none/*.log", "--treatment", "mixed/*.json", "--metrics", "p50")


def test_access_logs_say_when_they_began(bench):
    access_logs(bench, 10**11)
    answer = bench.compare("--baseline", "none", "--treatment", "istio", "--metrics", "p50")
    assert missing(answer.warned("sequential-order"), ["none", "istio"]) == []


def test_the_bucket_wider_than_the_margin_is_flagged(bench):
    # At 10 ms the margin of 5 % is 0.5 ms; the buckets are 1 ms wide.
    bench.treatment("none", [10.0, 10.1, 10.2, 10.3], bucket_ms=1)
    bench.treatment("istio", [20.0, 20.1, 20.2, 20.3], start=1, bucket_ms=0.2)
    answer = bench.compare(*BOTH)
    assert "[bucket]" in answer.out
    assert missing(answer.warned("coarse-quantile"), ["9.9%", "5.0%"]) == []  # 1 of 10.15
    wider = bench.compare(*BOTH, "--margin", "p50=12%")
    assert "margin 12 %" in wider.out
    assert "[bucket]" not in wider.out


def test_a_bucket_is_held_against_its_own_quantile(bench):
    # 1 ms is 5 % of 20 ms and would be 10 % of 10 ms: only the treatment's buckets are that wide.
    bench.treatment("none", [10.0, 10.1, 10.2, 10.3], bucket_ms=0.1)
    bench.treatment("istio", [20.0, 20.1, 20.2, 20.3], start=1, bucket_ms=1)
    assert "[bucket]" not in bench.compare(*BOTH, "--margin", "p50=6%").out
    assert "[bucket]" in bench.compare(*BOTH, "--margin", "p50=4%").out


def test_a_quantile_with_too_few_requests_is_withheld(six):
    answer = six.compare(*BOTH[:-1], "p50,p99")
    assert missing(answer.warned("not-reported"), ["p99", 10000, "none/run-1.json", 400]) == []
    six.refused(*BOTH[:-1], "p99")
    assert six.compare(*BOTH[:-1], "p99", "--sample-floor", "1").code == 0


def test_a_treatment_that_missed_its_rate_is_saturated(bench):
    bench.four(count=320)
    answer = bench.compare(*BOTH)
    assert missing(answer.warned("rate-missed"), ["istio/run-1.json", "80.0%"]) == []
    (row,) = answer.record["verdicts"]
    assert (row["verdict"], row["ratio"], row["p"]) == ("saturated", None, None)


def test_a_treatment_whose_requests_failed_gets_no_verdict_but_the_reason(bench):
    bench.treatment("none", [0.80, 0.81, 0.82, 0.83, 0.84, 0.85])
    bench.treatment("istio", [0.80, 0.81, 0.82, 0.83, 0.84, 0.86], start=1, RetCodes={"200": 280, "503": 120})
    answer = bench.compare(*BOTH)
    (row,) = answer.record["verdicts"]
    assert (row["verdict"], row["ratio"], row["p_equivalence"]) == ("invalid", None, None)
    assert missing(answer.warned("errors"), ["30.0%"]) == []
    forced = bench.compare(*BOTH, "--force")
    assert forced.code == 0
    assert forced.record["verdicts"][0]["ratio"] is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"ActualQPS": 0.0},
        {"ActualQPS": 200.0},
        {"ActualDuration": 0},
        {"ActualDuration": 40_000_000_000, "ActualQPS": 10.0},
        {"Sizes": {"Count": 400, "Avg": 2_000_000.0}},
    ],
)
def test_numbers_that_contradict_each_other_are_refused_by_name(bench, changes):
    bench.treatment("none", [0.80, 0.81, 0.82, 0.83], Sizes={"Count": 400, "Avg": 1200.0})
    bench.treatment("istio", [1.00, 1.01, 1.02, 1.03], start=1, **changes)
    bench.refused(*BOTH)
    assert bench.compare(*BOTH, "--force").code == 0


def test_a_request_a_row_is_no_run(bench):
    rows = [f"{k},{name},p50_ms,{0.8 + k / 1000}" for name in ("none", "istio") for k in range(201)]
    bench.write("t.csv", "\n".join(["run,treatment,response,value", *rows]))
    answer = bench.compare("--table", "t.csv", "--baseline", "none")
    assert missing(answer.warned("many-runs"), [201, "none"]) == []


def test_nothing_is_called_within_the_buckets(bench):
    # Medians 4 % apart from buckets of 1 ms at 10 ms: the truth may lie anywhere in them.
    bench.treatment("none", [10.0, 10.1, 10.2, 10.3, 10.0, 10.15], bucket_ms=1)
    bench.treatment("istio", [10.4, 10.5, 10.6, 10.7, 10.45, 10.55], start=1, bucket_ms=1)
    (row,) = bench.compare(*BOTH, "--margin", "p50=8%").record["verdicts"]
    assert row["p"] <= 0.05  # the numbers differ, but not necessarily what they measure
    assert row["sentence"] == "inconclusive (the buckets are too coarse to tell)"
    assert row["ci_low"] < 1 < row["ci_high"]
    assert row["ci_high"] > 1.2
    bench.treatment("fine", [10.4, 10.5, 10.6, 10.7, 10.45, 10.55], start=1, bucket_ms=0.01)
    bench.treatment("base", [10.0, 10.1, 10.2, 10.3, 10.0, 10.15], bucket_ms=0.01)
    fine = bench.compare("--baseline", "base", "--treatment", "fine", "--metrics", "p50", "--margin", "p50=8%")
    assert fine.record["verdicts"][0]["sentence"] == "slower (below margin)"


def test_drift_over_time_is_said_of_runs_that_are_not_paired(bench):
    # Alternating in time, and every run slower than the last: identical treatments, six runs each.
    bench.treatment("none", [0.80, 0.90, 1.00, 1.10, 1.20, 1.30])
    bench.treatment("istio", [0.85, 0.95, 1.05, 1.15, 1.25, 1.35], start=1)
    drifting = bench.compare(*BOTH)
    assert re.search(r"\+\d", drifting.warned("drift"))
    bench.treatment("level", [0.80, 0.82, 0.79, 0.81, 0.83, 0.80], start=1)
    bench.treatment("none", [0.81, 0.79, 0.83, 0.80, 0.82, 0.80])
    assert (
        "drift:"
        not in bench.compare("--baseline", "none/*.json", "--treatment", "level/*.json", "--metrics", "p50").flat
    )


def test_an_interval_without_ends_is_said_to_be_one(bench, make_result):
    # Both medians are of a bucket as wide as themselves: the ratio lies anywhere.
    for treatment, lowest in (("none", 1.0), ("istio", 1.1)):
        for k in range(4):
            p50 = lowest + k / 100
            minute = 2 * k + (treatment == "istio")
            bench.write(f"{treatment}/{k}.json", make_result(p50, bucket_ms=p50, minute=minute))
    answer = bench.compare(*BOTH)
    (row,) = answer.record["verdicts"]
    assert (row["ci_low"], row["ci_high"]) == (None, None)
    (line,) = [line for line in answer.out.splitlines() if line.startswith("  istio")]
    assert line.split()[-5:] == ["+9.9", "%", "-", "0.029", "0.029"]
    assert "unbounded" in answer.flat
    assert " - at " not in answer.flat
    page = bench.compare(*BOTH, "--html", "o.html") and (bench.folder / "o.html").read_text()
    assert "(–" not in page
    assert "– at" not in page


def test_medians_that_point_the_other_way_are_explained(bench):
    # Two kinds of runs a side. Most pairs of runs are a tenth faster, but the typical run is three times slower.
    bench.treatment("none", [10, 11, 12, 40, 41])
    bench.treatment("istio", [9, 9.5, 36, 37, 38], start=1)
    answer = bench.compare(*BOTH)
    (row,) = answer.record["verdicts"]
    assert (row["baseline_value"], row["treatment_value"]) == (pytest.approx(0.012), pytest.approx(0.036))
    assert row["ratio"] < 1
    assert "The medians of istio change in the opposite direction" in answer.flat
    bench.treatment("none", [10, 11, 12, 13, 14])
    assert "opposite direction" not in bench.compare(*BOTH).flat


def test_beyond_three_metrics_is_exploratory(six):
    answer = six.compare(*BOTH[:-1], "p50,p75,mean,p90", "--sample-floor", "1")
    assert [row["exploratory"] for row in answer.record["verdicts"]] == [False, False, False, True]
    assert "p90 latency, typical run's; margin 0.050 ms (6 %); exploratory" in answer.out  # of 0.833 ms


def test_the_page_is_offline_and_says_the_same(six):
    answer = six.compare(*BOTH, "--html", "o.html")
    page = (six.folder / "o.html").read_text()
    assert "page    o.html" in answer.out
    assert "2/924 = 0.0022" in page
    assert "▲ slower" in page
    assert "material, p" in page
    assert page.count("<script") == 1  # its own, which the policy names by digest
    assert 'src="http' not in page
    assert "no difference" not in page.lower()


@pytest.mark.parametrize("hostile", ["<img src=x onerror=alert(1)>", "<script>alert(1)<!--"])
def test_the_name_of_a_folder_or_treatment_stays_text_on_the_page(six, hostile):
    six.treatment(hostile, [1.10, 1.11, 1.12, 1.13, 1.14, 1.15], start=1)
    name = "<script>alert(2)<!--"
    for asked, shown in ((hostile, hostile), (f"{name}=istio", name)):
        answer = six.compare("--baseline", "none", "--treatment", asked, "--metrics", "p50", "--html", "o.html")
        assert answer.code == 0, answer.err
        page = (six.folder / "o.html").read_text()
        assert "<img" not in page
        assert page.count("<script") == 1  # its own, which the policy names by digest
        assert html.unescape(re.search(r"<h1>(.*?)</h1>", page).group(1)) == f"{shown} against none"


def test_bad_usage(six):
    for arguments in (
        BOTH[:2],
        (*BOTH, "--alpha", "0"),
        (*BOTH, "--alpha", "nan"),
        (*BOTH, "--sample-floor", "inf"),
        (*BOTH, "--sample-floor", "nan"),
        (*BOTH, "--margin", "p5=5%"),
        (*BOTH, "--margin", "p50=wide"),
        (*BOTH[:-1], "latency_max_s"),
        (*BOTH, "--treatment", "istio/*.json"),
        ("--baseline", "none/run-1.json", "none/run-1.json", "--treatment", "istio"),
        (*BOTH, "--where", "a=b"),
    ):
        six.refused(*arguments)
    assert six.compare(*BOTH, "--json", "none/run-1.json/o.json").code == 2
