"""`meshtrial compare --merge`: the files of a folder are the generators of one run."""

import json
import re

import pytest
from refused import refused

from meshtrial import paths
from meshtrial.compare.files import run_of
from meshtrial.errors import UsageError

FIXTURES = paths.CHECKOUT / "tests" / "fixtures" / "formats"
ASKED = ("--baseline", "none=none/*/*", "--treatment", "istio=istio/*/*", "--merge", "--sample-floor", "0.1")


def scaled(factor: float) -> str:
    """Return wrk2's text with all latencies and the spectrum below it scaled, and no failures."""
    text = (FIXTURES / "wrk2.txt").read_text().replace("  Non-2xx or 3xx responses: 234\n", "")
    row, foot = r"(?m)^( +)(\d+\.\d{3})(?= +[01]\.\d{6} )", r"(?<=\[)(Mean +|Max +)= +(\d+\.\d{3})"
    text = re.sub(row, lambda match: f"{match[1]}{float(match[2]) * factor:.3f}", text)
    text = re.sub(foot, lambda match: f"{match[1]}= {float(match[2]) * factor:.3f}", text)
    return re.sub(r"(?m)(?<=% ) +([\d.]+)ms *$", lambda match: f"  {float(match[1]) * factor:.2f}ms", text)


def write_runs(bench, form):
    """Write two runs per treatment, each from three generators."""
    for treatment, run in ((name, k) for name in ("none", "istio") for k in range(2)):
        for pod in range(3):
            bench.write(f"{treatment}/{run}/{pod}", form(treatment, run, pod))


def test_three_load_pods_of_wrk2_are_one_run(bench):
    factors = (1.0, 2.0, 20.0)
    write_runs(bench, lambda name, run, pod: scaled(factors[pod] * (1 + run / 100 + (name == "istio") / 50)))
    answer = bench.compare(*ASKED, "--metrics", "p50,p90")
    assert answer.code == 0, answer.err
    runs = answer.record["runs"]
    assert [run["run"] for run in runs] == ["none/0", "none/1", "istio/0", "istio/1"]
    assert [len(run["files"]) for run in runs] == [3] * 4
    responses, bounds, load = runs[0]["responses"], runs[0]["bounds"], runs[0]["load"]
    # Of 1794 requests 897 took at most the median. At most 572 and 300 of the first two pods took up to 2.198 ms (1.099
    # doubled), and none of the third; at least 572 and 329 took up to 2.312 ms. The mean of the three p50 is 8.4 ms.
    assert 2.198e-3 < responses["latency_p50_s"] < 2.312e-3
    assert bounds["latency_p50_s"] == pytest.approx(0.114e-3)
    # 179.4 took longer than p90, of the slowest pod alone: its p70, of 418.6 requests, is between 25.1 and 26.46 ms.
    assert 25.1e-3 < responses["latency_p90_s"] <= 26.46e-3
    assert responses["latency_mean_s"] == pytest.approx(1.177e-3 * 23 / 3)
    assert responses["latency_max_s"] == pytest.approx(5.496e-3 * 20)
    assert (responses["requests"], responses["error_ratio"]) == (3 * 2601, 0)
    assert responses["achieved_rps"] == pytest.approx(3 * 200.03)
    assert (load["threads"], load["actual_rps"]) == (6, pytest.approx(600.09))


def test_the_median_of_pods_that_are_alike_lies_between_theirs(tmp_path):
    files = [tmp_path / str(pod) for pod in range(3)]
    for file, factor in zip(files, (1.0, 1.02, 1.04), strict=True):
        file.write_text(scaled(factor))
    run = run_of("none", "run", files, 1.0)
    # They are 1.099, 1.121 and 1.143 ms. Up to the first of them 300, 298 and 298 of 1794 took at most: one too few.
    assert run.bounds["latency_p50_s"] == pytest.approx(44e-6)
    assert 1.099e-3 < run.responses["latency_p50_s"] <= 1.143e-3


def vegeta(name: str, run: int, pod: int) -> str:
    lines = []
    for k in range(20):
        second = 10 * run + (name == "istio")
        stamp = f"2026-11-23T09:00:{second:02d}.{k * 10 + pod:03d}Z"
        code = 503 if (k, pod) == (0, 0) else 200
        lines.append(json.dumps({"attack": f"pod-{pod}", "seq": k, "code": code, "timestamp": stamp,
                                 "latency": 1_000_000 * (100 * pod + k + 1), "bytes_in": 5}))  # fmt: skip
    return "\n".join(lines) + "\n"


def test_requests_of_several_generators_are_pooled(bench):
    write_runs(bench, vegeta)
    run = bench.compare(*ASKED, "--metrics", "p50").record["runs"][0]
    # 59 good ones: 2 to 20, 101 to 120 and 201 to 220 ms; the thirtieth is the eleventh of the second pod.
    assert run["responses"]["latency_p50_s"] == pytest.approx(0.111)
    assert run["responses"]["latency_max_s"] == pytest.approx(0.220)
    assert run["responses"]["latency_mean_s"] == pytest.approx((209 + 2210 + 4210) / 59 / 1e3)
    assert run["responses"]["requests"] == 60
    assert run["responses"]["error_ratio"] == pytest.approx(1 / 60)
    assert run["start_unix_s"] == pytest.approx(1795424400.0)


@pytest.mark.parametrize(
    "form",
    [
        "k6-samples.json",
        "vegeta.csv",
        "oha.csv",
        "hey.csv",
        "ghz.json",
        "wrk2.txt",
        "nighthawk.json",
        "locust.json",
        "vegeta-hist.txt",
    ],
)
def test_every_form_with_requests_or_counts_is_merged(tmp_path, form):
    files = [tmp_path / str(pod) for pod in range(3)]
    for file in files:
        file.write_bytes((FIXTURES / form).read_bytes())
    alone, together = run_of("none", "run", files[:1], 1.0), run_of("none", "run", files, 1.0)
    assert together.requests == pytest.approx(3 * alone.requests, abs=1)
    # Three times the same requests have the same median, to the resolution of its counts.
    known_to = together.bounds["latency_p50_s"] + alone.bounds["latency_p50_s"]
    assert together.responses["latency_p50_s"] == pytest.approx(alone.responses["latency_p50_s"], abs=known_to)
    assert together.responses.get("error_ratio") == pytest.approx(alone.responses.get("error_ratio"))
    assert {"latency_p90_s", "latency_p95_s"} <= set(together.responses)
    assert together.responses.get("achieved_rps", 0.0) == pytest.approx(3 * alone.responses.get("achieved_rps", 0.0))


@pytest.mark.parametrize(
    "form", ["wrk.txt", "k6-summary-export.json", "vegeta-report.json", "oha.json", "hey.txt", "locust_stats.csv"]
)
def test_percentiles_are_not_merged(tmp_path, form):
    files = [tmp_path / str(pod) for pod in range(3)]
    for file in files:
        file.write_bytes((FIXTURES / form).read_bytes())
    with refused(UsageError):
        run_of("none", "run", files, 1.0)


def test_generators_of_different_forms_or_loads_are_not_merged(tmp_path):
    for name, form in (("a", "oha.csv"), ("b", "hey.csv")):
        (tmp_path / name).write_bytes((FIXTURES / form).read_bytes())
    with refused(UsageError, names=["oha", "hey", "CSV"]):
        run_of("none", "run", [tmp_path / "a", tmp_path / "b"], 1.0)
    text = (FIXTURES / "nighthawk.json").read_text()
    (tmp_path / "a").write_text(text)
    (tmp_path / "b").write_text(text.replace('"request_body_size": 0', '"request_body_size": 9'))
    with refused(UsageError, names=["payload", 0, 9]):
        run_of("none", "run", [tmp_path / "a", tmp_path / "b"], 1.0)


def test_what_k6_dropped_is_a_share_of_all_generators(tmp_path):
    text = (FIXTURES / "k6-samples.json").read_text()
    made = len(re.findall(r'"metric": ?"iterations", ?"type": ?"Point"', text))
    dropped = json.dumps(
        {"metric": "dropped_iterations", "type": "Point", "data": {"time": "2026-11-23T09:55:28Z", "value": made}}
    )
    (tmp_path / "a").write_text(text)
    (tmp_path / "b").write_text(text + dropped + "\n")
    # One made all of its iterations, the other half: together, two of every three.
    assert run_of("none", "run", [tmp_path / "a", tmp_path / "b"], 1.0).settings.sent_share == pytest.approx(2 / 3)
