"""Verdict rows as JSON for programs that keep the results of a pipeline: github-action-benchmark and Bencher.

Both watch one number per name from run to run. They are given the effect against the baseline of the same study: it was
measured beside its baseline, whereas a level also moves with the machine. The A/A twin is included, as what a machine
does without a change. Names do not depend on verdicts, so that a series continues.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from meshtrial.design.responses import REGISTRY
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.frames import Contrasts

_SMALLER_IS_BETTER = ("latency", "resource")


def benchmark_json(title: str, contrasts: Contrasts) -> str:
    """Return the primary contrasts for `customSmallerIsBetter` of github-action-benchmark.

    A value is the ratio to the baseline, or the difference in SI units where there is no ratio. Responses of which more
    is better are left out.
    """
    entries = []
    for row in _primary(contrasts):
        ratio, difference = _effects(row)
        chosen = ratio or difference
        if chosen is None or (row.response in REGISTRY and REGISTRY[row.response].kind not in _SMALLER_IS_BETTER):
            continue
        low, high = (chosen.get(end) for end in ("lower_value", "upper_value"))
        entry = {
            "name": f"{_name(title, row)}, {row.label}",
            "unit": "ratio" if ratio else f"{row.response}, difference",
            "value": chosen["value"],
            "extra": f"{wording.effect_in_full(row)}: {row.sentence}",
        }
        if low is not None and high is not None:
            entry["range"] = f"{low:.4g} to {high:.4g}"
        entries.append(entry)
    return _dumped(entries)


def bencher(title: str, contrasts: Contrasts) -> str:
    """Return the primary contrasts in Bencher Metric Format (https://bencher.dev/bmf.json).

    Each response has two measures, its ratio and its difference in SI units, with the ends of their intervals.
    """
    benchmarks: dict[str, dict[str, Any]] = {}
    for row in _primary(contrasts):
        for scale, effect in zip(("ratio", "difference"), _effects(row), strict=True):
            if effect is not None:
                benchmarks.setdefault(_name(title, row), {})[f"{row.response} {scale}"] = effect
    return _dumped(benchmarks)


def _primary(contrasts: Contrasts) -> Iterator[VerdictRow]:
    return (row for row in contrasts.rows if not row.exploratory)


def _name(title: str, row: VerdictRow) -> str:
    at = f" at {row.load}" if row.load else ""
    return f"{title}: {row.treatment} against {row.baseline}{at}"


def _effects(row: VerdictRow) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """Return ratio and difference with the ends of their intervals that are finite; None for a missing one."""
    ratio = _metric(row.ratio, row.ci_low, row.ci_high)
    return ratio, _metric(row.difference, row.difference_low, row.difference_high)


def _metric(value: float | None, low: float | None, high: float | None) -> dict[str, float] | None:
    if value is None or not math.isfinite(value):
        return None
    ends = {"lower_value": low, "upper_value": high}
    return {"value": value} | {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}


def _dumped(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
