"""The record of one run, ``run.json``, and rows of verdicts.

Unknown keys are refused when a record is read back, so that a record of another version is never half understood.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from meshtrial.design.migration import RUN_1, run_of_1
from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import SHAPE_ERRORS, of_schema, read, reason
from meshtrial.vocabulary import AFTER_THE_FACT, VerdictLabel, Warning, sentence

SCHEMA = "meshtrial.run/2"


# Run checks that a slow treatment fails by itself, and those that a slow or failing treatment does.
RATE_GATES = frozenset({"rate", "late"})
OWN_GATES = RATE_GATES | {"errors", "obeyed", "streams", "order"}
# Run checks of the load generator, which are never the treatment's failure.
GENERATOR_GATES = frozenset({"generator CPU", "generator late"})
MACHINE_GATES = GENERATOR_GATES | {"foreign load"}


@dataclass(frozen=True)
class Proof:
    """One demonstration that the treatment really is what its label states."""

    # What is proven, e.g. `plaintext refused`.
    name: str
    phase: str  # `before` or `after` the load
    passed: bool
    # For the report, in words or numbers
    expected: str
    observed: str

    @property
    def reason(self) -> str:
        """The reason of a run that failed it."""
        return f"check {self.name} ({self.phase}): expected {self.expected}, saw {self.observed}"


@dataclass(frozen=True)
class GateResult:
    """One run check: the measured value, its threshold, and the reason in words if it failed."""

    name: str
    value: float | None
    threshold: float
    passed: bool
    message: str = ""

    @property
    def own(self) -> bool:
        """Whether a failure may be the treatment's own; otherwise it is the machine's or the load generator's."""
        return self.name in OWN_GATES

    @property
    def reason(self) -> str:
        """The reason of a run that failed it."""
        return f"check {self.name}: {self.message}"


@dataclass(frozen=True)
class ComponentUsage:
    """The resources that one component used in the load's window."""

    # E.g. `client sidecar`.
    component: str
    role: str  # of one of `PARTS`, or `collector`, which no response includes
    # Length of the window and CPU seconds used in it
    window_s: float
    cpu_s: float
    pss_bytes: int | None  # proportional set size at its end; None where it could not be read
    throttled_s: float | None = None  # time under CFS throttling in the window; None without such a counter
    count: int = 1  # processes or containers summed here
    switches: int | None = None  # context switches in the window, voluntary and not
    largest_bytes: int | None = None  # memory of the largest of the processes or containers


@dataclass(frozen=True)
class GeneratorRecord:
    """One call of a load generator, with its arguments and its result."""

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
    """``run.json``."""

    run_id: str  # planned run; `attempt` 2 is its one repeat inside the block
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
    responses: Mapping[str, float]  # response name to value in SI base units; only what the sample floor allows
    bounds: Mapping[str, float]  # resolution of a quantile in seconds where it came from a histogram or a coarse clock
    # Whether all run checks passed; `reasons` lists those that failed.
    valid: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    # Failed requests by kind: an HTTP status, gRPC's name, or `time-out`, `refused`, `reset`, `no answer`,
    # `out of order`
    failures: Mapping[str, int] = field(default_factory=dict)
    # Further values of some studies, such as push times of the control plane or steps of a search
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished_unix_s(self) -> float:
        """When it ended."""
        return datetime.datetime.fromisoformat(self.finished_at).timestamp()

    @property
    def failed_gates(self) -> tuple[GateResult, ...]:
        """The run checks of the load that failed."""
        return tuple(gate for gate in self.gates if not gate.passed)

    @property
    def other_reasons(self) -> tuple[str, ...]:
        """The other reasons of a failure: a failed proof, a part that ended, a cluster that did not respond."""
        of_gates = {gate.reason for gate in self.failed_gates}
        return tuple(reason for reason in self.reasons if reason not in of_gates)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"schema": SCHEMA} | dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "run.json") -> RunRecord:
        """The inverse of :meth:`to_dict`."""
        is_former = data.get("schema") == RUN_1
        body = of_schema(data, RUN_1 if is_former else SCHEMA, where)
        try:
            record = read(cls, run_of_1(body) if is_former else body)
            datetime.datetime.fromisoformat(record.finished_at)  # the next session is due a gap after it
            return record
        except (UsageError, *SHAPE_ERRORS) as error:
            raise RecordError(
                f"{where}: not a complete run record ({reason(error)}); restore it from a backup"
            ) from None


# The beginning of a run folder's name until the run is complete.
TEMPORARY = ".incomplete-"


def run_folder(study: Path, run_id: str, attempt: int) -> Path:
    """Return the folder of a complete attempt of a run."""
    return study / "runs" / (run_id if attempt == 1 else f"{run_id}-attempt{attempt}")


# Load, response, treatment and baseline.
ContrastKey: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    """A row of ``verdicts.json``: one contrast, one response, one load.

    A column is annotated with its meaning and its unit, which is ``response`` where it is that of the row's response.
    Every table, schema and page takes them from here.
    """

    study: Annotated[str, "name of the study; `compare` for a comparison of files"]
    load: Annotated[str, "label of the load; empty for a comparison of files"]
    response: Annotated[str, "name of the response"]
    label: Annotated[str, "the response's name as reports show it"]
    unit: Annotated[str, "unit in which reports show the response; values and differences are stored in SI base units"]
    treatment: Annotated[str, "treatment of the contrast"]
    baseline: Annotated[str, "treatment with which it is compared"]
    family: Annotated[
        str,
        "name of the family; contrasts of one family are corrected together. "
        "Empty for the default family: all contrasts of the response",
    ] = ""
    twin: Annotated[bool, "whether this is the study's own A/A test: the baseline deployed a second time"]
    exploratory: Annotated[bool, "whether the response was not declared primary, so the verdict is a hint"]
    n_blocks: Annotated[int, "units compared: complete blocks, sessions, or runs of the smaller treatment"]
    counted: Annotated[str, "what is compared and counted: `blocks`, `sessions` (means of their blocks) or `runs`"] = (
        "blocks"
    )
    sessions: Annotated[int, "sessions or places over which the blocks are spread; 0 if unknown, as in files"] = 1
    verdict: Annotated[
        VerdictLabel, "a word of the verdict table in docs/method.md; `provisional` until the study is finished"
    ]
    qualifier: Annotated[
        str,
        "for a difference, `material`, `below margin` or empty; for `saturated` and `invalid`, the failing side; "
        "otherwise what a conclusion would need",
    ]
    sentence: Annotated[str, "the verdict in words"] = field(init=False, default="")
    scale: Annotated[str, "`ratio` or `difference`: the effect to which verdict, margin and mde refer"]
    baseline_value: Annotated[float | None, "the baseline's median over the included runs", "response"]
    treatment_value: Annotated[float | None, "the treatment's median over the included runs", "response"]
    ratio: Annotated[float | None, "Hodges-Lehmann estimate of treatment over baseline; empty if a value is missing"]
    ci_low: Annotated[float | None, "lower end of the ratio's interval"]
    ci_high: Annotated[float | None, "upper end of the ratio's interval"]
    confidence: Annotated[float | None, "achieved confidence of the interval"]
    difference: Annotated[float | None, "Hodges-Lehmann estimate of treatment minus baseline", "response"]
    difference_low: Annotated[float | None, "lower end of the difference's interval", "response"]
    difference_high: Annotated[float | None, "upper end of the difference's interval", "response"]
    p: Annotated[float | None, "p-value of the exact two-sided test of no effect"]
    p_adjusted: Annotated[float | None, "p corrected for the family, by the method in adjustment"]
    p_equivalence: Annotated[float | None, "p-value of the two one-sided tests against the margin"]
    p_equivalence_adjusted: Annotated[
        float | None, "p_equivalence corrected by Holm; for an exploratory response, by the method in adjustment"
    ]
    adjustment: Annotated[str, "max-t, holm, benjamini-hochberg (p_adjusted is then a q-value), or none for the twin"]
    p_material: Annotated[float | None, "p-value of the one-sided test that the effect lies beyond the margin"]
    p_material_adjusted: Annotated[float | None, "p_material corrected in the same way as p_equivalence"]
    margin: Annotated[
        float | None, "largest effect declared too small to matter, as a ratio minus one or as a difference"
    ]
    margin_relative: Annotated[float | None, "the margin's relative part, as declared"]
    margin_floor: Annotated[
        float | None, "the margin's absolute floor, if it is larger than the relative part and so decides", "response"
    ]
    noise_floor: Annotated[float | None, "size of the study's own A/A contrast, on the scale of margin"]
    mde: Annotated[float | None, "minimum detectable effect at 80 % power, on the scale of margin"]
    blocks_needed: Annotated[int | None, "blocks of a new study that would probably be conclusive"]
    method: Annotated[str, "test and interval that were used"]
    warnings: Annotated[tuple[Warning, ...], "warnings that apply to the row, each with a code and a message"] = ()
    after_the_fact: Annotated[str, "settings that were chosen after the runs; empty for a study's own verdict"] = field(
        init=False, default=""
    )

    def __post_init__(self) -> None:
        """Set the derived fields; ValueError if the verdict is not in the vocabulary."""
        later = (warning.message for warning in self.warnings if warning.code == AFTER_THE_FACT)
        derived = {
            "verdict": VerdictLabel(self.verdict),
            "sentence": sentence(self.verdict, self.qualifier),
            "after_the_fact": next(later, ""),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def by_difference(self) -> bool:
        """Whether verdict, margin and smallest effect are those of the difference."""
        return self.scale == "difference"

    @property
    def key(self) -> ContrastKey:
        """The key of its contrast."""
        return self.load, self.response, self.treatment, self.baseline

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        warnings = [dataclasses.asdict(warning) for warning in self.warnings]
        return plain | {"verdict": self.verdict.value, "warnings": warnings}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> VerdictRow:
        """The inverse of :meth:`to_dict`; derived fields are computed again."""
        derived = {field.name for field in dataclasses.fields(cls) if not field.init}
        given = {name: value for name, value in data.items() if name not in derived}
        return read(cls, given)
