"""Sentences that published comparisons draw from their numbers, held against these numbers.

Opinion: two questions are kept apart. Do the printed numbers say it (arithmetic), and could they have shown it
(inference)? Every figure here is computed from ``data/published``; only the quoted words are written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshtrial.articles import published
from meshtrial.articles.published import AMBIENT, LINKERD, SCALE, Settings

ONE_RUN = "cannot be tested: one run a treatment"
A_MEAN = "cannot be tested: means alone are printed, and runs were discarded by their maximum"


@dataclass(frozen=True)
class Claim:
    """One printed sentence.

    Attributes
    ----------
    words, place : str
        As printed, and where.
    numbers : str
        What the printed numbers say.
    arithmetic : bool or None
        Whether they say what the words say; None where no arithmetic can tell.
    inference : str
        Whether it was shown, and why not.
    """

    words: str
    place: str
    numbers: str
    arithmetic: bool | None
    inference: str

    @property
    def stands(self) -> str:
        """In a word or two."""
        return {True: "as arithmetic only", False: "no", None: "open"}[self.arithmetic]


def claims(settings: Settings) -> tuple[Claim, ...]:
    """Every claim, with the numbers that it rests on."""
    return (*_details(settings), *_bookinfo(), *_linkerd(), *_scale())


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
        )
    ]


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


def _listed(changes: Sequence[float]) -> str:
    return ", ".join(f"{change:.1f}" for change in changes) + " %"
