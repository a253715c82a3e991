"""The transcribed numbers and the claims about them."""

import ast
import dataclasses
import json
import sys

import polars as pl
import pytest
from refused import refused

import meshtrial as mt
import published
from meshtrial import MeshtrialError, paths
from meshtrial.load.quantiles import COLUMNS
from meshtrial.records.dataset import RUNS_SCHEMA
from meshtrial.records.schema import RunRecord, VerdictRow
from published import AMBIENT, DEBATE, FEATURES, LINKERD, RATES, REPEATED, SCALE, SIDECARLESS, Articles, claims

# One column per response (mean, P50, P75, P90, P99), typed a second time from the articles.
PRINTED = {
    ("details, old app", "none"): [
        [0.89, 0.64, 0.74, 0.85, 2.67],
        [0.86, 0.65, 0.75, 0.86, 1.71],
        [0.90, 0.65, 0.76, 0.88, 1.92],
    ],
    ("details, old app", "ambient"): [
        [0.80, 0.60, 0.71, 0.81, 1.40],
        [0.81, 0.61, 0.72, 0.83, 1.56],
        [0.82, 0.63, 0.72, 0.84, 1.50],
    ],
    ("details, new app", "none"): [
        [0.76, 0.58, 0.69, 0.81, 1.56],
        [0.72, 0.59, 0.70, 0.82, 1.60],
        [0.77, 0.58, 0.70, 0.80, 1.49],
    ],
    ("details, new app", "ambient"): [
        [0.72, 0.57, 0.66, 0.76, 1.24],
        [0.76, 0.59, 0.69, 0.80, 1.37],
        [0.76, 0.59, 0.69, 0.81, 1.38],
    ],
    ("details, connection close", "none"): [[1.90, 1.72, 2.28, 2.77, 3.98]],
    ("details, connection close", "ambient"): [[2.06, 2.15, 2.65, 2.94, 4.00]],
    ("Bookinfo, new, 1000 rps", "none"): [[1.39, 1.32, 1.42, 1.67, 2.19]],
    ("Bookinfo, new, 1000 rps", "ambient"): [[1.40, 1.34, 1.48, 1.68, 2.94]],
    ("Bookinfo, old, 1000 rps", "none"): [[6.35, 4.68, 7.44, 11.4, 36.63]],
    ("Bookinfo, old, 1000 rps", "ambient"): [[6.74, 4.90, 7.79, 12.12, 41.14]],
    ("Bookinfo, new, 4000 rps", "none"): [[1.54, 1.33, 1.54, 2.25, 3.98]],
    ("Bookinfo, new, 4000 rps", "ambient"): [[1.58, 1.37, 1.57, 2.33, 4.90]],
}


@pytest.mark.parametrize(("experiment", "treatment"), PRINTED)
def test_every_number_of_the_ambient_article(experiment, treatment):
    rows = PRINTED[experiment, treatment]
    for place, response in enumerate(("mean", "p50", "p75", "p90", "p99")):
        assert published.values(AMBIENT, experiment, treatment, response) == [row[place] for row in rows]


def test_nothing_else_is_transcribed():
    assert published.read(AMBIENT).height == sum(5 * len(rows) for rows in PRINTED.values()) == 100


def test_means_and_single_figures():
    for rps, most in ((20, (57, 250, 18)), (200, (119, 280, 30))):
        for mesh, median, largest in zip(("linkerd", "istio", "none"), (14, 26, 6), most, strict=True):
            assert published.value(LINKERD, f"latency, {rps} rps", mesh, "median") == median
            assert published.value(LINKERD, f"latency, {rps} rps", mesh, "max") == largest
    # The printed additions are the differences of the latencies.
    for mesh in ("linkerd", "istio"):
        low = {name: published.value(LINKERD, "latency, 20 rps", name, "max") for name in (mesh, "none")}
        assert published.value(LINKERD, "as added, 20 rps", mesh, "added_max") == low[mesh] - low["none"]
    assert [published.value(SCALE, "600 endpoints", mesh, "total_cpu") for mesh in ("istio", "linkerd")] == [
        51,
        68,
    ]
    assert published.value(SCALE, "errors", "istio", "responses_504") == 124_710
    assert [published.value(SCALE, "errors", mesh, "failed") for mesh in ("istio", "linkerd")] == [61_660, 18_000]
    assert published.value(SCALE, "600 endpoints", "istio", "total_cpu_peak") == 54


# Baseline, Linkerd, Istio's sidecars, ambient: over the bars of the charts, typed a second time.
CHARTS = {
    (20, "p90"): [55.2, 54.4, 60.1, 60.5],
    (20, "p95"): [58.3, 56.6, 63.9, 64.3],
    (20, "p99"): [67.7, 64.1, 90.6, 74.3],
    (20, "median"): [49.5, 49, 52.6, 52.3],
    (200, "p90"): [51.6, 51.9, 58.5, 56.1],
    (200, "p95"): [54.3, 54, 62.4, 58.4],
    (200, "p99"): [63.9, 60.97, 83.8, 65.3],
    (200, "median"): [46.84, 46.8, 50.9, 49.4],
    (2000, "p90"): [55.9, 137.1, 226.6, 163.4],
    (2000, "p95"): [74.5, 143.2, 276.4, 180.4],
    (2000, "p99"): [182.1, 251.4, 414.4, 262.6],
    (2000, "median"): [46.2, 109.8, 239.7, 112.4],
}


@pytest.mark.parametrize(("rate", "response"), CHARTS)
def test_every_number_of_the_2025_charts(rate, response):
    found = [
        published.value(SIDECARLESS, f"2025, {rate} rps", mesh, response)
        for mesh in ("none", "linkerd", "istio", "ambient")
    ]
    assert found == CHARTS[rate, response]
    assert published.read(SIDECARLESS).height == 4 * len(CHARTS)


def test_the_numbers_of_the_feature_study():
    def row(kind, response, *meshes):
        return [published.value(FEATURES, kind, mesh, response) for mesh in meshes]

    meshes = ("none", "istio", "kuma", "linkerd", "consul")
    assert row("basic, 200 rps", "median", *meshes) == [3.342, 5.208, 4.222, 4.332, 4.34]
    assert row("basic, 700 rps", "median", *meshes) == [9.843, 15.94, 26.02, 26.21, 34.84]
    assert row("basic, 1200 rps", "median", *meshes) == [20.83, 31.9, 35.94, 39.24, 70.51]
    assert row("basic, 1200 rps", "p99", *meshes) == [319.1, 362.7, 315.4, 348.3, 305.8]
    assert row("basic, 700 rps", "service_cpu", *meshes) == [317, 318, 313, 323, 323]
    assert row("basic, 1800 rps", "achieved_rps", *meshes) == [1437, 1387, 1441, 1579, 1503]
    assert row("Istio features, 700 rps", "median", "istio", "istio+mtls", "istio+opa") == [15.94, 19.72, 46.75]
    assert row("Consul features, 700 rps", "median", "consul", "consul+mtls") == [34.84, 57.48]
    ends = [row(f"range, {rate} rps", f"added_{e}", "any mesh") for rate in (200, 700, 1200) for e in ("least", "most")]
    assert [end for (end,) in ends] == [0.7, 1.5, 5, 25, 10, 50]


def test_every_row_names_its_source():
    table = published.read()
    assert table.select(pl.col("source", "url", "statistic", "unit").is_not_null().all()).row(0) == (True,) * 4
    assert table["url"].str.starts_with("https://").all()


@pytest.mark.parametrize("experiment", REPEATED)
def test_three_pairs_cannot_go_below_a_quarter(experiment):
    outcome = Articles().repeated(experiment)
    assert outcome.limits().text.startswith("3 blocks: the smallest possible p is 2/8 = 0.25.")
    rows = outcome.verdicts()
    assert set(rows["verdict"]) == {"inconclusive"}
    assert set(rows["n_blocks"]) == {3}
    assert rows["p"].min() == 0.25
    assert rows["p_equivalence"].min() == 0.125
    assert set(rows["margin_relative"]) == {0.05}
    assert rows["margin_floor"].null_count() == rows.height == 5  # the articles argue in percent


def test_both_apps_are_six_pairs():
    rows = {row["response"]: row for row in Articles().both_apps().verdicts().rows(named=True)}
    # All six P99s are lower under ambient: 2/64.
    assert rows["latency_p99_s"]["p"] == pytest.approx(2 / 64)
    assert rows["latency_p99_s"]["verdict"] == "faster"
    assert rows["latency_p50_s"]["verdict"] == "inconclusive"  # one tie, one pair reversed


def test_every_run_of_the_debate_is_in_its_table():
    table = published.read(DEBATE)
    assert table.height == 3 * len(RATES) * 5 * len(published.OF_DEBATE) == 375
    assert set(table.group_by("treatment", "rps", "response").len()["len"]) == {5}


def test_the_debate_at_every_rate():
    found = {(one.rps, one.ambient["response"]): one for one in Articles().debated()}
    assert len(found) == len(RATES) * 5
    assert {(one.ambient["treatment"], one.twin["treatment"], one.twin["twin"]) for one in found.values()} == {
        ("ambient", "linkerd-aa", True)
    }

    def verdicts(response, row):
        return [getattr(found[rps, response], row)["verdict"] for rps in RATES]

    # Each of ambient's five runs is above each of Linkerd's: 2 / (10 over 5).
    assert verdicts("mesh_cpu", "ambient") == verdicts("data_plane_memory", "ambient") == ["higher"] * 5
    assert [found[rps, "mesh_cpu"].ambient["p"] for rps in RATES] == pytest.approx([2 / 252] * 5)
    assert verdicts("latency_p99_s", "ambient") == ["faster"] * 4 + ["slower"]
    # The A/A twin differs at one of five rates, by less than the margin.
    assert verdicts("mesh_cpu", "twin") == ["inconclusive", "inconclusive", "higher", "inconclusive", "inconclusive"]
    assert found[240, "mesh_cpu"].twin["qualifier"] == "below margin"
    assert all(found[rps, "mesh_cpu"].ambient["ci_low"] > found[rps, "mesh_cpu"].twin["ci_high"] for rps in RATES)
    # Medians of runs, read in the raw files: 2.588 and 5.178 cores, 16.64 and 9.071 ms.
    assert found[1200, "mesh_cpu"].median("treatment_value") == "5.18 cores"
    assert found[240, "latency_p50_s"].median("baseline_value") == "16.6 ms"


def test_the_sequences_of_the_debate_followed_each_other():
    assert [published.began(name) for name in ("ambient", "linkerd", "linkerd-aa")] == [
        ["15:38", "18:07"],
        ["22:26", "00:52"],
        ["00:58", "03:22"],
    ]


def test_claims_of_the_debate():
    found = {claim.words: claim for claim in claims(Articles()) if claim.place.startswith("sidecar debate")}
    doubled = found["Istio Ambient as a whole nearly doubled Linkerd's CPU usage"]
    assert doubled.stands == "as arithmetic only"
    assert "1.72, 1.82, 1.88, 1.83, 2.01 times" in doubled.numbers
    assert doubled.inference.startswith("significant at 5 of 5 rates (p = 0.0079)")
    assert "mesh and time are not separated" in doubled.inference
    assert found["the modern meshes are all fast enough that latency problems tend not to be the mesh"].stands == "open"
    assumed = [claim for claim in found.values() if not claim.quoted]
    assert [claim.stands for claim in assumed] == ["no", "no"]
    assert assumed[1].numbers == "they differ at 1 of 5 rates, by 2.3 %"


def test_needed():
    found = {(n.experiment, n.response): n for n in Articles().needed()}
    assert all(n.n == 3 and n.for_margin >= 6 for n in found.values())
    # The outlier of the old app's P99 costs hundreds of pairs.
    assert found["details, old app", "p99 latency"].for_margin > 200
    assert found["details, old app", "p50 latency"].for_margin == 6


def test_claims():
    found = {claim.words[:24]: claim for claim in claims(Articles())}
    improved = found["adding ambient mode impro"[:24]]
    assert improved.numbers == "no mesh is slower by 11.3, 6.2, 9.8 % in the three pairs"  # .89/.80, .86/.81, .90/.82
    assert improved.stands == "as arithmetic only"
    assert "p = 0.25 at n = 3" in improved.inference
    assert found["the differences (average,"[:24]].stands == "open"
    assert found["the new Bookinfo made 5-1"[:24]].stands == "no"  # P99 36.63/2.19 is 16.7
    assert found["8ms vs 26ms median (20 R"].stands == "no"
    assert not any(claim.inference.startswith("shown") for claim in found.values())
    # Of the 2025 comparison.
    leads = found["163ms faster than sideca"]
    assert leads.stands == "as arithmetic only"  # 414.4 - 251.4 and 262.6 - 251.4
    assert leads.numbers == "the chart gives 163 and 11.2 ms; the second is 4.3 % of Ambient's p99"
    better = found["Linkerd even showed bett"]
    assert better.numbers == "in 4 of 4 figures, and in 3 of 4 at 200 rps; by up to 5.3 %"  # 64.1 / 67.7
    assert found["the latencies are margin"].numbers.endswith("7.7 to 8.2 times those of 2021")  # 46.2 / 6, 49.5 / 6
    narrowed = found["the performance gap has "]
    assert narrowed.stands == "no"
    assert narrowed.numbers.endswith("12, 12, 11 ms then, 3.6, 4.1, 129.9 ms now")
    impossible = found["Istio's median at 2000 r"]
    assert (impossible.stands, impossible.quoted) == ("no", False)
    # Of the failures.
    failures = found["Linkerd only saw 18k fai"]
    assert failures.numbers.startswith("Istio's 61,660 are 3.4 times as many")
    assert "about 378 million" in failures.numbers  # 124,710 / 0.00033


def test_claims_of_the_feature_study():
    found = {claim.words: claim for claim in claims(Articles()) if claim.place.startswith("feature study")}
    assert not any(claim.quoted for claim in found.values())
    low = found["a mesh adds 0.7 to 1.5 ms at 200 requests per second"]
    # 4.222 - 3.342 and 5.208 - 3.342.
    assert (low.stands, low.numbers) == ("open", "medians of its report: +0.9 to +1.9 ms; p99s: -7 to +2 ms")
    assert found["a mesh adds 5 to 25 ms at 700 requests per second"].stands == "as arithmetic only"
    assert found["a mesh adds 10 to 50 ms at 1,200 requests per second"].stands == "as arithmetic only"
    assert {c.inference for words, c in found.items() if words.startswith("a mesh adds")} == {
        "cannot be tested: a range over the meshes, not over runs; it has no replicate"
    }
    others = [claim for words, claim in found.items() if words.startswith("assumes")]
    assert [claim.stands for claim in others] == ["no"] * 3
    assert "used 313 to 325 of the 325 mcores" in others[0].numbers
    assert others[1].numbers == "1,200 asked: 94 to 95 % sent; 1,800 asked: 77 to 88 % sent"
    assert others[2].numbers.endswith("+19, +24, -10, +4, +65, +0 %")


def test_numbers_without_a_replicate_are_quotients():
    found = {(one.experiment, one.response, one.treatment): one for one in published.singles()}
    one = found["Bookinfo, new, 1000 rps", "p99", "ambient"]
    assert (one.statistic, one.ratio) == ("one run", pytest.approx(2.94 / 2.19))
    assert not any(experiment in REPEATED for experiment, _, _ in found)
    # A feature is compared with its mesh; conditions and ranges have no quotient.
    consul = found["Consul features, 700 rps", "median", "consul+mtls"]
    assert (consul.baseline, consul.ratio) == ("consul", pytest.approx(57.48 / 34.84))
    assert {response for _, response, _ in found}.isdisjoint({"achieved_rps", "service_cpu", "added_least"})
    assert {one.source[:9] for one in published.singles(SIDECARLESS)} == {"D. Táskai"}
    with refused(MeshtrialError, names=["other.csv", "data/published", SIDECARLESS]):
        published.singles("other.csv")


@pytest.mark.parametrize("given", [{"alpha": 0.0}, {"alpha": 0.5}, {"margin": 0.0}, {"margin": -0.1}])
def test_an_error_level_or_a_margin_that_is_none_is_refused(given):
    with pytest.raises(MeshtrialError, match=next(iter(given))):
        Articles(**given).claims()


@pytest.mark.parametrize("path", sorted(published.FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_beside_the_data_takes_public_names_of_the_library(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names if alias.name.startswith("meshtrial")} <= {"meshtrial"}
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("meshtrial"):
            assert node.module == "meshtrial"
            assert {alias.name for alias in node.names} <= {*mt.__all__}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id != "self":
            assert not node.attr.startswith("_")


def test_every_cell_of_the_notebook_runs_and_none_says_that_there_is_no_difference(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = (paths.NOTEBOOKS / "published.ipynb").read_text()
    assert "no difference" not in text.lower()
    notebook = json.loads(text)
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)


def test_the_data_dictionary_names_every_column():
    pages = (paths.CHECKOUT / "data" / "README.md", paths.CHECKOUT / "docs" / "reference" / "files.md")
    text = "".join(page.read_text() for page in pages)
    known = [*RUNS_SCHEMA, *COLUMNS, *(f.name for f in dataclasses.fields(VerdictRow))]
    known += [f.name for f in dataclasses.fields(RunRecord)]
    known += [name for name in published.read().columns if name != "file"]
    assert [name for name in known if f"`{name}`" not in text] == []
