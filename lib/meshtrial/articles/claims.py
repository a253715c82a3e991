"""Sentences that published comparisons draw from their numbers, held against these numbers.

Opinion: two questions are kept apart. Do the printed numbers say it (arithmetic), and could they have shown it
(inference)? Every figure here is computed from ``data/published``; only the quoted words are written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshtrial.articles import published
from meshtrial.articles.published import AMBIENT, FEATURES, LINKERD, SCALE, SIDECARLESS, Settings

ONE_RUN = "cannot be tested: one run a treatment"
A_MEAN = "cannot be tested: means alone are printed, and runs were discarded by their maximum"
ONE_FIGURE = "cannot be tested: one figure a treatment, from the 3 of 5 runs that were kept by their maximum"
A_RANGE = "cannot be tested: a range over the meshes, not over runs; it has no replicate"
MESHES = ("istio", "kuma", "linkerd", "consul")
RATES, QUANTILES = (20, 200, 2000), ("median", "p90", "p95", "p99")
# What a study here asks of every run: achieved within 2 % of the requested rate.
RATE_TOLERANCE = 0.02


@dataclass(frozen=True)
class Claim:
    """One printed sentence.

    Attributes
    ----------
    words, place : str
        As printed, or in sense where they are not quoted, and where.
    numbers : str
        What the printed numbers say.
    arithmetic : bool or None
        Whether they say what the words say; None where no arithmetic can tell.
    inference : str
        Whether it was shown, and why not.
    quoted : bool
        Whether the words are the article's own; others are its sense, or what its comparison rests on.
    """

    words: str
    place: str
    numbers: str
    arithmetic: bool | None
    inference: str
    quoted: bool = True

    @property
    def stands(self) -> str:
        """In a word or two."""
        return {True: "as arithmetic only", False: "no", None: "open"}[self.arithmetic]


def claims(settings: Settings) -> tuple[Claim, ...]:
    """Every claim, with the numbers that it rests on."""
    return (*_details(settings), *_bookinfo(), *_linkerd(), *_scale(), *_features(), *_sidecarless())


def _details(settings: Settings) -> list[Claim]:
    old, new = published.REPEATED
    mean, tail = _slower(old, "mean"), _slower(new, "p99")
    close = [_single("details, connection close", name) for name in ("p50", "p75", "p90", "p99")]
    rows = {row.response: row for row in published.repeated(new, settings).rows}
    quiet = [rows[f"latency_{name}_s"] for name in ("mean", "p50", "p75", "p90")]
    least = min(row.p_equivalence or 1.0 for row in quiet)
    return [
        Claim(
            "adding ambient mode improved latencies by 6-11% on average",
            "ambient, Table 1",
            f"no mesh is slower by {_listed(mean)} in the three pairs",
            round(min(mean)) >= 6 and round(max(mean)) <= 11,
            _not_shown(old, "latency_mean_s", settings),
        ),
        Claim(
            "the differences (average, P50, P75, P90) are likely noise",
            "ambient, Table 3",
            "; ".join(f"{row.label} {100 * ((row.ratio or 1) - 1):+.1f} %" for row in quiet),
            None,
            f"not shown: nothing is different and nothing equivalent at n = {quiet[0].n_blocks} "
            f"(smallest equivalence p {least:.3g}); noise is one reading, too few runs the other",
        ),
        Claim(
            "P99 where the no mesh is consistently 8% or more slower",
            "ambient, Table 3",
            f"slower by {_listed(tail)}",
            round(min(tail)) >= 8,
            _not_shown(new, "latency_p99_s", settings),
        ),
        Claim(
            "P50, P75, P90 and P99 are all slower from the ambient run with connection close",
            "ambient, Table 2",
            f"slower by {_listed(close)}",
            min(close) > 0,
            f"{ONE_RUN}; and the printed command sets the header on the call to fortio's REST API, not on the requests",
        ),
    ]


def _bookinfo() -> list[Claim]:
    small, large, old = "Bookinfo, new, 1000 rps", "Bookinfo, new, 4000 rps", "Bookinfo, old, 1000 rps"
    one = [_single(small, name) for name in ("mean", "p90")]
    four = [_single(large, name) for name in ("mean", "p90")]
    factors = [
        published.value(AMBIENT, old, mesh, name) / published.value(AMBIENT, small, mesh, name)
        for mesh in ("none", "ambient")
        for name in ("mean", "p50", "p75", "p90", "p99")
    ]
    usual = [
        _single(name, response)
        for name in ("details, connection close", small, old, large)
        for response in ("mean", "p90")
    ]
    inside = sum(0 <= change <= 5 for change in usual)
    return [
        Claim(
            "less than 1% slower for average and P90",
            "ambient, Table 4",
            f"slower by {_listed(one)}; P99, not mentioned, by {_single(small, 'p99'):.0f} %",
            max(one) < 1,
            ONE_RUN,
        ),
        Claim(
            "ambient mode is about 3-4% slower (4000 RPS)",
            "ambient, Table 6",
            f"slower by {_listed(four)}; P99, not mentioned, by {_single(large, 'p99'):.0f} %",
            all(round(change) in (3, 4) for change in four),
            ONE_RUN,
        ),
        Claim(
            "the new Bookinfo made 5-10X improvements on response times, for either no mesh or ambient",
            "ambient, Tables 4 and 5",
            f"factors from {min(factors):.1f} to {max(factors):.1f}; "
            f"{sum(5 <= x <= 10 for x in factors)} of {len(factors)} lie between 5 and 10",
            all(5 <= x <= 10 for x in factors),
            ONE_RUN,
        ),
        Claim(
            "most of the time within the range of 0-5% increase for the average or P90",
            "ambient, first results",
            f"{inside} of the {len(usual)} figures printed in Tables 2, 4, 5 and 6 are",
            2 * inside > len(usual),
            ONE_RUN,
        ),
    ]


def _linkerd() -> list[Claim]:
    def number(experiment: str, mesh: str, response: str) -> float:
        return published.value(LINKERD, experiment, mesh, response)

    low, high, used = "latency, 20 rps", "latency, 2000 rps", "resources, 2000 rps"
    added = {mesh: number(low, mesh, "median") - number(low, "none", "median") for mesh in ("linkerd", "istio")}
    most = number(high, "istio", "added_max") / number(high, "linkerd", "added_max")
    typical = number(high, "istio", "added_median") / number(high, "linkerd", "added_median")
    memory = number(used, "istio", "proxy_memory_max") / number(used, "linkerd", "proxy_memory_max")
    cpu = number(used, "linkerd", "proxy_cpu_max") / number(used, "istio", "proxy_cpu_max")
    return [
        Claim(
            "8ms vs 26ms median (20 RPS)",
            "Linkerd and Istio, 20 RPS",
            f"one adds {added['linkerd']:g} ms, the other {added['istio']:g} ms: 26 ms is Istio's whole latency",
            added["istio"] == 26,
            A_MEAN,
        ),
        Claim(
            "1/3rd the additional median latency and 1/8th the additional maximum latency (2,000 RPS)",
            "Linkerd and Istio, summary",
            f"1/{typical:.1f} and 1/{most:.1f}",
            round(typical) == 3 and round(most) == 8,
            f"{A_MEAN}; a maximum depends on the number of requests and is described only",
        ),
        Claim(
            "1/6th the memory and 55% of the CPU at the data plane",
            "Linkerd and Istio, summary",
            f"1/{memory:.1f} and {100 * cpu:.0f} %",
            round(memory) == 6 and abs(100 * cpu - 55) < 2,
            "cannot be tested: averages of largest values are printed, without their spread",
        ),
    ]


def _scale() -> list[Claim]:
    ratios = [
        100
        * (
            published.value(SCALE, "one proxy", "istio", name) / published.value(SCALE, "one proxy", "linkerd", name)
            - 1
        )
        for name in ("loadgen_proxy_cpu", "client_proxy_cpu", "server_proxy_cpu")
    ]
    return [
        Claim(
            "Istio's Envoy proxy uses more than 50% more CPU than Linkerd's (earlier article: does it hold at scale?)",
            "CPU at scale",
            f"Istio's against Linkerd's: {', '.join(f'{x:+.0f} %' for x in ratios)}",
            min(ratios) > 50,
            "cannot be tested: one figure a mesh",
        ),
        *_totals(),
        _failures(),
    ]


def _totals() -> list[Claim]:
    def number(endpoints: int, mesh: str, response: str = "total_cpu") -> float:
        return published.value(SCALE, f"{endpoints} endpoints", mesh, response)

    small, large = (100 * (number(size, "linkerd") / number(size, "istio") - 1) for size in (30, 600))
    peak = 100 * (number(600, "istio", "total_cpu_peak") / number(600, "istio") - 1)
    grown = {mesh: number(600, mesh) / number(30, mesh) for mesh in ("istio", "linkerd")}
    return [
        Claim(
            "at the peak of this test, Linkerd was using ~68 cores, approximately 33% more than Istio's ~51 cores",
            "CPU at scale, conclusion",
            f"{large:.0f} % more at 600 endpoints and {small:.0f} % at 30; Istio's own peak is {peak:.0f} % above "
            "the 51, and no peak of Linkerd's is printed",
            round(large) == 33,
            "cannot be tested: one cluster a mesh, so the cluster is part of the difference, and each ramp ran once",
        ),
        Claim(
            "the CPU usage overall is dictated by traffic throughput, not mesh size or mesh-wide RPS",
            "CPU at scale, proxy CPU usage",
            "endpoints and rate grow 20 times together; CPU grows "
            f"{grown['istio']:.1f} and {grown['linkerd']:.1f} times",
            None,
            "cannot be told apart: the rate was raised with the endpoints; scale_out can hold it at every size",
        ),
    ]


def _failures() -> Claim:
    failed = {mesh: published.value(SCALE, "errors", mesh, "failed") for mesh in ("istio", "linkerd")}
    unanswered = published.value(SCALE, "errors", "istio", "responses_504")
    total = unanswered / (published.value(SCALE, "errors", "istio", "share_504") / 100)
    return Claim(
        "Linkerd only saw 18k failed requests",
        "CPU at scale, reliability",
        f"Istio's {failed['istio']:,.0f} are {failed['istio'] / failed['linkerd']:.1f} times as many, besides "
        f"{unanswered:,.0f} responses with 504 of about {total / 1e6:.0f} million; Linkerd's 500s are not counted",
        failed["linkerd"] < failed["istio"],
        "cannot be tested: one ramp a mesh. Requests that fail together in one bad minute are not replicates, and the "
        "workers themselves were short of CPU",
    )


def _features() -> list[Claim]:
    return [*(_range(rate) for rate in (200, 700, 1200)), *_limits(), _twins()]


def _feature(experiment: str, mesh: str, response: str) -> float:
    return published.value(FEATURES, experiment, mesh, response)


def _range(rate: int) -> Claim:
    low, high = (_feature(f"range, {rate} rps", "any mesh", f"added_{end}") for end in ("least", "most"))
    basic = f"basic, {rate} rps"
    medians, tails = (
        [_feature(basic, mesh, name) - _feature(basic, "none", name) for mesh in MESHES] for name in ("median", "p99")
    )
    return Claim(
        f"a mesh adds {low:g} to {high:g} ms at {rate:,} requests a second",
        "feature study",
        f"medians of its report: {min(medians):+.1f} to {max(medians):+.1f} ms; p99s: {min(tails):+.0f} to "
        f"{max(tails):+.0f} ms",
        # Of which quantile the range is cannot be told, so numbers that do not fit it leave it open.
        True if low <= round(min(medians), 1) and round(max(medians), 1) <= high else None,
        A_RANGE,
        quoted=False,
    )


def _limits() -> list[Claim]:
    everyone = ("none", *MESHES)
    used = [_feature(f"basic, {rate} rps", mesh, "service_cpu") for rate in (700, 1200, 1800) for mesh in everyone]
    sent = {
        rate: [_feature(f"basic, {rate} rps", mesh, "achieved_rps") / rate for mesh in everyone]
        for rate in (1200, 1800)
    }
    return [
        Claim(
            "rests on: the application has CPU to spare, from 700 requests a second on",
            "feature study, Tables 9.3 and 9.4 of its report",
            f"the application used {min(used):.0f} to {max(used):.0f} of the 325 mcores of its limit in every "
            "treatment, no mesh included",
            False,
            "measured is the queue before an application at its limit; here such runs fail the throttling gate",
            quoted=False,
        ),
        Claim(
            "rests on: every treatment got the rate that stands above it",
            "feature study, Table 9.2 of its report",
            "; ".join(
                f"{rate:,} asked: {100 * min(shares):.0f} to {100 * max(shares):.0f} % sent"
                for rate, shares in sent.items()
            ),
            min(min(shares) for shares in sent.values()) >= 1 - RATE_TOLERANCE,
            "treatments under different loads cannot be compared; here they are saturated, and get no latency",
            quoted=False,
        ),
    ]


def _twins() -> Claim:
    """Istio's automatic mutual TLS, and Consul's, was on in the treatments without mTLS too."""
    changes = [
        100 * (_feature(experiment, f"{mesh}+mtls", "median") / _feature(experiment, mesh, "median") - 1)
        for mesh in ("istio", "consul")
        for experiment in (f"{mesh.title()} features, {rate} rps" for rate in (200, 700, 1200))
    ]
    return Claim(
        "rests on: Istio and Consul without mTLS speak plain text",
        "feature study, Tables 9.7, 9.8 and 9.11 of its report, and its code",
        "sidecars speak mutual TLS either way, by default; medians at 200, 700 and 1,200 rps, Istio, then Consul: "
        + ", ".join(f"{round(change):+d}" for change in changes)
        + " %",
        False,
        "nearly an A/A test, by accident: it tells how far apart single runs come out that should hardly differ",
        quoted=False,
    )


def _sidecarless() -> list[Claim]:
    return [*_leads(), *_since_2021(), _median_above_p90()]


def _chart(rate: int, mesh: str, response: str) -> float:
    return published.value(SIDECARLESS, f"2025, {rate} rps", mesh, response)


def _leads() -> list[Claim]:
    at_200 = [_chart(200, "istio", "p99") - _chart(200, other, "p99") for other in ("linkerd", "none", "ambient")]
    at_2000 = [_chart(2000, mesh, "p99") - _chart(2000, "linkerd", "p99") for mesh in ("istio", "ambient")]
    lead = 100 * (1 - _chart(2000, "linkerd", "p99") / _chart(2000, "ambient", "p99"))
    faster = {
        rate: [100 * (1 - _chart(rate, "linkerd", name) / _chart(rate, "none", name)) for name in QUANTILES]
        for rate in (20, 200)
    }
    counts = {rate: sum(change > 0 for change in changes) for rate, changes in faster.items()}
    return [
        Claim(
            "22.83ms higher latency than Linkerd, 19.9ms higher than baseline, and 18.5ms higher than Ambient "
            "at 99th percentile",
            "2025 comparison, 200 RPS",
            f"the chart gives {_plain(at_200)} ms",
            [round(value, 2) for value in at_200] == [22.83, 19.9, 18.5],
            ONE_FIGURE,
        ),
        Claim(
            "163ms faster than sidecar-enabled Istio at the 99th percentile, and maintains a consistent 11.2ms lead "
            "over Istio Ambient",
            "2025 comparison, 2000 RPS",
            f"the chart gives {at_2000[0]:.0f} and {at_2000[1]:.1f} ms; the second is {lead:.1f} % of Ambient's p99",
            [round(value, 1) for value in at_2000] == [163.0, 11.2],
            f"{ONE_FIGURE}; nothing printed can say that a lead is consistent",
        ),
        Claim(
            "Linkerd even showed better performance in some cases",
            "2025 comparison, 20 RPS, against no mesh",
            f"in {counts[20]} of 4 figures, and in {counts[200]} of 4 at 200 rps; by up to "
            f"{max(map(max, faster.values())):.1f} %",
            counts[20] > 0,
            f"{ONE_FIGURE}. Either proxies shorten a path or the noise is at least that large, and the lead of "
            f"{lead:.1f} % at 2000 rps is not larger",
        ),
    ]


def _since_2021() -> list[Claim]:
    def before(rate: int, mesh: str) -> float:
        # At 2000 rps the meshes are printed as what they add.
        name = "added_median" if rate == 2000 and mesh != "none" else "median"
        return published.value(LINKERD, f"latency, {rate} rps", mesh, name)

    then = [before(rate, "istio") - before(rate, "linkerd") for rate in RATES]
    now = [_chart(rate, "istio", "median") - _chart(rate, "linkerd", "median") for rate in RATES]
    slower = [_chart(rate, "none", "median") / before(rate, "none") for rate in RATES]
    return [
        Claim(
            "the latencies are marginally higher than the 2021 benchmark",
            "2025 comparison, test harness",
            f"the medians without a mesh are {min(slower):.1f} to {max(slower):.1f} times those of 2021",
            max(slower) < 1.5,
            "other machines, another network and another path: two such articles are not one comparison",
        ),
        Claim(
            "the performance gap has narrowed since 2021",
            "2025 comparison, conclusion",
            "Istio's sidecars less Linkerd, medians at 20, 200 and 2000 rps: "
            f"{_plain(then)} ms then, {_plain(now)} ms now",
            all(new < old for new, old in zip(now, then, strict=True)),
            f"{ONE_FIGURE}; and on another cluster than in 2021",
        ),
    ]


def _median_above_p90() -> Claim:
    middle, upper = (_chart(2000, "istio", name) for name in ("median", "p90"))
    return Claim(
        f"Istio's median at 2000 rps is {middle:g} ms",
        "2025 comparison, chart of 2000 RPS",
        f"its p90 is printed as {upper:g} ms, and no set of requests has a median above its p90",
        middle <= upper,
        "the two cannot be of the same runs; which of them is wrong cannot be seen",
        quoted=False,
    )


def _slower(experiment: str, response: str) -> list[float]:
    """By how many per cent no mesh is slower than ambient, pair by pair."""
    pairs = zip(
        published.values(AMBIENT, experiment, "none", response),
        published.values(AMBIENT, experiment, "ambient", response),
        strict=True,
    )
    return [100 * (none / ambient - 1) for none, ambient in pairs]


def _single(experiment: str, response: str) -> float:
    """By how many per cent the one ambient run is slower than the one without a mesh."""
    ambient, none = (published.value(AMBIENT, experiment, mesh, response) for mesh in ("ambient", "none"))
    return 100 * (ambient / none - 1)


def _not_shown(experiment: str, response: str, settings: Settings) -> str:
    row = next(row for row in published.repeated(experiment, settings).rows if row.response == response)
    if row.verdict != "inconclusive":
        return f"{row.sentence}, p = {row.p:.2g}"
    return f"not shown: p = {row.p:.2g} at n = {row.n_blocks}; {row.sentence}"


def _plain(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _listed(changes: Sequence[float]) -> str:
    return ", ".join(f"{change:.1f}" for change in changes) + " %"
