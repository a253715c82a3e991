"""What one run leaves behind: every option echoed, so that a record alone explains itself.

Dictionaries of these classes are ``run.json``; unknown keys are refused when read back, so that a
record of another version is never half understood.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshtrial.design.responses import PARTS
from meshtrial.errors import RecordError
from meshtrial.typed import SHAPE_ERRORS, mismatch, shortened

SCHEMA = "meshtrial.run/1"
# The code of the warning that a verdict of a later analysis carries: it is not the study's own.
AFTER_THE_FACT = "after-the-fact"
# A trace collector is watched too, but no response counts it.
ROLES = (*(part.role for part in PARTS.values() if part.members == (part.role,)), "collector")


@dataclass(frozen=True)
class Proof:
    """One demonstration that the treatment is what its label says.

    Attributes
    ----------
    name : str
        What is proven, e.g. ``plaintext refused``.
    phase : str
        ``before`` or ``after`` the load.
    passed : bool
    expected, observed : str
        In words or numbers, for the report.
    """

    name: str
    phase: str
    passed: bool
    expected: str
    observed: str


@dataclass(frozen=True)
class GateResult:
    """One gate: the measured value against its threshold, and the reason in words where it failed."""

    name: str
    value: float | None
    threshold: float
    passed: bool
    message: str = ""


@dataclass(frozen=True)
class ComponentUsage:
    """What one component used over the load window.

    Attributes
    ----------
    component : str
        e.g. ``client sidecar``.
    role : str
        One of :data:`ROLES`.
    window_s, cpu_s : float
        Length of the window and CPU seconds used in it.
    pss_bytes : int or None
        Proportional set size at its end; None where it could not be read.
    throttled_s : float or None
        Time under CFS throttling in the window; None where there is no such counter.
    count : int
        Processes or containers summed here.
    switches : int or None
        Context switches in the window, voluntary and not.
    largest_bytes : int or None
        Memory of the largest of the processes or containers.
    """

    component: str
    role: str
    window_s: float
    cpu_s: float
    pss_bytes: int | None
    throttled_s: float | None = None
    count: int = 1
    switches: int | None = None
    largest_bytes: int | None = None


@dataclass(frozen=True)
class GeneratorRecord:
    """One load-generator call as it was made and as it ended."""

    argv: tuple[str, ...]
    version: str
    exit_code: int
    start_unix_s: float
    duration_s: float
    planned_requests: int | None
    requests: int
    errors: int
    requested_rps: float | None
    achieved_rps: float
    sockets: int | None
    connections: int
    resolution_s: float
    return_codes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """``run.json``.

    Attributes
    ----------
    run_id : str
        Planned run; ``attempt`` 2 is its one repeat inside the block.
    valid : bool
        All gates and proofs passed. ``reasons`` says what did not.
    responses : mapping of str to float
        Response name to value in SI base units; only what the sample floor allows.
    bounds : mapping of str to float
        Resolution of a quantile in seconds where it came from a histogram or a coarse clock.
    failures : mapping of str to int
        Failed requests by kind: an HTTP status, gRPC's name, or ``time-out``, ``refused``, ``reset``, ``no answer``.
    extra : mapping
        What a study adds (scale-out: control-plane push times; saturation: search steps).
    """

    run_id: str
    plan_sha256: str
    study: str
    backend: str
    repetition: int
    load: str
    position: int
    sequence: int
    treatment: str
    attempt: int
    app: str
    load_spec: Mapping[str, Any]
    options: Mapping[str, Any]
    started_at: str
    finished_at: str
    start_unix_s: float
    deploy_s: float
    target: str
    generators: tuple[GeneratorRecord, ...]
    proofs: tuple[Proof, ...]
    gates: tuple[GateResult, ...]
    usage: tuple[ComponentUsage, ...]
    versions: Mapping[str, str]
    responses: Mapping[str, float]
    bounds: Mapping[str, float]
    valid: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"schema": SCHEMA} | dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "run.json") -> RunRecord:
        """The inverse of :meth:`to_dict`."""
        if data.get("schema") != SCHEMA:
            found = shortened(data.get("schema"))
            raise RecordError(f"{where}: schema is {found}, this version reads {SCHEMA!r}")
        fields = {key: value for key, value in data.items() if key != "schema"}
        try:
            fields["generators"] = tuple(
                GeneratorRecord(**g | {"argv": tuple(g["argv"])}) for g in fields["generators"]
            )
            fields["proofs"] = tuple(Proof(**p) for p in fields["proofs"])
            fields["gates"] = tuple(GateResult(**g) for g in fields["gates"])
            fields["usage"] = tuple(ComponentUsage(**u) for u in fields["usage"])
            fields["reasons"] = tuple(fields["reasons"])
            fields["notes"] = tuple(fields["notes"])
            record = cls(**fields)
            wrong = mismatch(record)
        except SHAPE_ERRORS as error:
            wrong = shortened(error, 120)
        if wrong:
            raise RecordError(f"{where}: not a whole run record ({wrong}); restore it from a backup")
        return record


@dataclass(frozen=True)
class VerdictRow:
    """A row of ``verdicts.json``: one contrast, one response, one load.

    Attributes
    ----------
    ratio, ci_low, ci_high : float or None
        Hodges-Lehmann estimate of treatment/baseline and its interval; None where the baseline is
        structurally zero (then ``difference`` carries the estimate) or where nothing could be computed.
    confidence : float or None
        Confidence that the interval actually achieves.
    difference, difference_low, difference_high : float or None
        In the response's stored unit; ``difference_ms`` repeats a latency's in milliseconds.
    p, p_equivalence, p_material : float or None
        Exact two-sided test of no effect; two one-sided tests that it lies within the margin; a one-sided test that it
        lies beyond.
    p_adjusted, p_equivalence_adjusted, p_material_adjusted : float or None
        The same, corrected for the family by :attr:`adjustment`.
    mde : float or None
        Minimum detectable effect at 80 % power, as a ratio minus one.
    margin, margin_relative, margin_floor : float or None
        What is too small to matter, as a ratio minus one; its relative part as declared; and where the absolute floor
        is larger and decides, that floor in the response's stored unit.
    blocks_needed : int or None
        Blocks of a new study that would probably settle what is open.
    verdict : str
        Of the table in docs/method.md, or ``provisional`` while the study is not finished.
    baseline_value, treatment_value : float or None
        Median over the included runs.
    """

    study: str
    load: str
    response: str
    label: str
    unit: str
    treatment: str
    baseline: str
    twin: bool
    exploratory: bool
    n_blocks: int
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    confidence: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    difference_ms: float | None
    baseline_value: float | None
    treatment_value: float | None
    p: float | None
    p_adjusted: float | None
    p_equivalence: float | None
    p_equivalence_adjusted: float | None
    p_material: float | None
    p_material_adjusted: float | None
    margin: float | None
    margin_relative: float | None
    margin_floor: float | None
    noise_floor: float | None
    mde: float | None
    blocks_needed: int | None
    verdict: str
    qualifier: str
    sentence: str
    method: str
    warnings: tuple[str, ...] = ()

    @property
    def adjustment(self) -> str:
        """How ``p_adjusted`` was made: Holm, Benjamini-Hochberg (then it is a q), or not at all for the twin."""
        return "none" if self.twin else "benjamini-hochberg" if self.exploratory else "holm"

    @property
    def after_the_fact(self) -> bool:
        """Whether margin, error level or baseline of this row were chosen after the runs."""
        return any(warning.startswith(f"{AFTER_THE_FACT}: ") for warning in self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return dataclasses.asdict(self) | {"warnings": list(self.warnings)}
