"""The columns of every frame that the public functions return: name, type, unit, meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from meshtrial.errors import UsageError


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    kind : polars data type
    unit : str
        Empty where there is none; ``response`` where it is that of the row's response.
    meaning : str
    """

    kind: Any
    unit: str
    meaning: str


_TEXTS = pl.List(pl.String)
_RUN: dict[str, Column] = {
    "run_id": Column(pl.String, "", "the planned run: load (where there are several), block, position, treatment"),
    "load": Column(pl.String, "", "label of the load"),
    "block": Column(pl.Int32, "", "from 1; runs of one block are compared with each other"),
    "position": Column(pl.Int32, "", "from 1; place within the block"),
    "sequence": Column(pl.Int32, "", "from 0; place in the whole plan"),
    "treatment": Column(pl.String, "", "data plane and features, e.g. sidecar+mtls"),
    "app": Column(pl.String, "", "application behind it"),
    "attempt": Column(pl.Int32, "", "1, or 2 for the one repeat of an invalid run inside its block"),
    "start_unix_s": Column(pl.Float64, "s", "when the run began, since 1970"),
    "valid": Column(pl.Boolean, "", "all gates and proofs passed"),
    "included": Column(pl.Boolean, "", "takes part in the inference"),
}
RUNS: dict[str, Column] = _RUN | {
    "deploy_s": Column(pl.Float64, "s", "from nothing to ready"),
    "requests": Column(pl.Int64, "", "requests that were sent in the measured time"),
    "errors": Column(pl.Int64, "", "those of them that failed"),
    "achieved_rps": Column(pl.Float64, "1/s", "rate over all generators"),
    "reasons": Column(_TEXTS, "", "why it is not valid"),
}
RESPONSES: dict[str, Column] = _RUN | {
    "response": Column(pl.String, "", "name of the response, e.g. latency_p50_s"),
    "value": Column(pl.Float64, "response", "in SI base units: seconds, bytes, cores, 1/s"),
    "bound": Column(pl.Float64, "s", "resolution of a latency that came from a histogram or a coarse clock"),
}
REQUESTS: dict[str, Column] = {
    "slice": Column(pl.Int32, "", "from 0; the interleaved measurement of this deployment"),
    "generator": Column(pl.Int32, "", "from 0; the process or pod that sent it"),
    "thread": Column(pl.Int32, "", "from 0; the connection of that generator"),
    "iter": Column(pl.Int64, "", "from 0; the request of that connection"),
    "scheduled_start_s": Column(pl.Float64, "s", "when it was due, after the run's start; null in a closed loop"),
    "actual_start_s": Column(pl.Float64, "s", "when it was sent, after the run's start"),
    "latency_s": Column(pl.Float64, "s", "from when it was sent to its answer"),
    "corrected_latency_s": Column(pl.Float64, "s", "with the wait for its own connection, where it was due earlier"),
    "ok": Column(pl.Boolean, "", "answered as it should be; null where nothing is known"),
    "code": Column(pl.String, "", "HTTP status or gRPC's name; time-out, refused, reset or no answer where none came"),
    "imputed": Column(pl.Boolean, "", "was due and never sent; only its corrected latency is known"),
}
SERIES: dict[str, Column] = {
    "slice": Column(pl.Int32, "", "from 0; the interleaved measurement of this deployment"),
    "second": Column(pl.Int32, "s", "after the start of the slice, from 0"),
    "component": Column(pl.String, "", "part of the deployment; empty for what is known of the requests"),
    "measure": Column(pl.String, "", "sent, failed, failed KIND, p50_s, p90_s, p99_s; cpu_cores, memory_bytes"),
    "value": Column(pl.Float64, "", "in the measure's unit; a quantile is that of the requests sent in this second"),
}
VERDICTS: dict[str, Column] = {
    "load": Column(pl.String, "", "label of the load; empty in a comparison"),
    "response": Column(pl.String, "", "name of the response"),
    "label": Column(pl.String, "", "its name for people"),
    "unit": Column(pl.String, "", "unit in which values and differences are stored"),
    "treatment": Column(pl.String, "", ""),
    "baseline": Column(pl.String, "", "what it is compared with"),
    "twin": Column(pl.Boolean, "", "the study's own A/A test: the baseline deployed a second time"),
    "exploratory": Column(pl.Boolean, "", "not declared primary: a hint"),
    "n_blocks": Column(pl.Int64, "", "blocks compared; runs where nothing is paired"),
    "verdict": Column(pl.String, "", "slower, faster, more, less, equivalent, inconclusive, ..."),
    "qualifier": Column(pl.String, "", "material, below margin, or empty"),
    "sentence": Column(pl.String, "", "the verdict in words"),
    "baseline_value": Column(pl.Float64, "response", "median over the included runs"),
    "treatment_value": Column(pl.Float64, "response", "median over the included runs"),
    "ratio": Column(pl.Float64, "", "Hodges-Lehmann estimate of treatment over baseline; null where that is 0"),
    "ci_low": Column(pl.Float64, "", "lower end of the ratio's interval"),
    "ci_high": Column(pl.Float64, "", "upper end of the ratio's interval"),
    "confidence": Column(pl.Float64, "", "confidence that the interval reaches"),
    "difference": Column(pl.Float64, "response", "treatment minus baseline"),
    "difference_low": Column(pl.Float64, "response", "lower end of its interval"),
    "difference_high": Column(pl.Float64, "response", "upper end of its interval"),
    "p": Column(pl.Float64, "", "exact two-sided test of no effect"),
    "p_adjusted": Column(pl.Float64, "", "corrected for the family, as adjustment says"),
    "p_equivalence": Column(pl.Float64, "", "two one-sided tests against the margin"),
    "p_equivalence_adjusted": Column(pl.Float64, "", "corrected likewise"),
    "adjustment": Column(pl.String, "", "holm, benjamini-hochberg (then p_adjusted is a q), or none for the twin"),
    "p_material": Column(pl.Float64, "", "one-sided test that the effect lies beyond the margin"),
    "p_material_adjusted": Column(pl.Float64, "", "corrected likewise"),
    "margin": Column(pl.Float64, "", "what was declared too small to matter, as a ratio minus one"),
    "margin_relative": Column(pl.Float64, "", "its relative part, as declared"),
    "margin_floor": Column(pl.Float64, "response", "its absolute floor, where that is larger and decides"),
    "noise_floor": Column(pl.Float64, "", "what the study's own A/A test resolves, as a ratio minus one"),
    "mde": Column(pl.Float64, "", "minimum detectable effect at 80 % power, as a ratio minus one"),
    "blocks_needed": Column(pl.Int64, "", "blocks of a new study that would settle what is open"),
    "method": Column(pl.String, "", "test and interval"),
    "warnings": Column(_TEXTS, "", "what a reader must know"),
    "after_the_fact": Column(pl.String, "", "what was chosen after the runs; empty for a study's own verdict"),
}
FRAMES: dict[str, dict[str, Column]] = {
    "verdicts": VERDICTS,
    "runs": RUNS,
    "responses": RESPONSES,
    "requests": REQUESTS,
    "series": SERIES,
}


def columns(frame: str) -> pl.DataFrame:
    """What the columns of a frame mean.

    Parameters
    ----------
    frame : str
        ``verdicts``, ``runs``, ``responses``, ``requests`` or ``series``: the method that returns it.

    Returns
    -------
    polars.DataFrame
        Columns ``name``, ``type``, ``unit`` and ``meaning``.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.columns("runs").filter(name="deploy_s").row(0)
    ('deploy_s', 'Float64', 's', 'from nothing to ready')
    """
    if frame not in FRAMES:
        raise UsageError(f"columns({frame!r}): is no frame; there are {', '.join(FRAMES)}")
    return pl.DataFrame(
        [(name, str(one.kind), one.unit, one.meaning) for name, one in FRAMES[frame].items()],
        schema=["name", "type", "unit", "meaning"],
        orient="row",
    )


def frame_of(rows: list[dict[str, Any]], described: Mapping[str, Column]) -> pl.DataFrame:
    """Rows as a frame of exactly these columns."""
    return pl.DataFrame(
        {name: [row[name] for row in rows] for name in described},
        schema={name: one.kind for name, one in described.items()},
    )
