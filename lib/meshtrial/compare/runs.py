"""A run of a named treatment, as plain data, and what was found wrong with a set of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meshtrial.errors import UsageError
from meshtrial.load.settings import LoadSettings
from meshtrial.vocabulary import VerdictLabel, Warning


@dataclass(frozen=True)
class Run:
    """One run."""

    treatment: str
    name: str  # what the user knows it by: its file (or folder), or the table's column `run`
    kind: str  # fortio, nighthawk, access log, table, or another generator's form
    values: Mapping[str, float]  # response to value; SI base units for registered responses
    # Resolution in seconds of a quantile: its histogram bucket, or the log's microsecond.
    bounds: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[Path, str] = field(default_factory=dict)  # files read, with their SHA-256
    settings: LoadSettings | None = None  # the load as it was asked for; None where the input does not say
    block: str | None = None  # what it is paired by
    start_unix_s: float | None = None
    requests: int | None = None  # successful ones decide how far into the tail a quantile may be reported
    notes: tuple[str, ...] = ()
    further: str = ""  # how a file of this kind comes to hold further percentiles; empty where its requests decide


@dataclass(frozen=True)
class Finding(Warning):
    """What a reader must know; a blocking one is refused unless the user insists."""

    blocking: bool


@dataclass(frozen=True)
class Sample:
    """The runs of all treatments."""

    by_treatment: Mapping[str, Sequence[Run]]  # the baseline first
    baseline: str
    blocks: tuple[str, ...] = ()  # labels of the pairs, in order; empty where the runs are not paired
    pairing: str = ""  # in words, how the pairs were formed; empty where they are not
    findings: tuple[Finding, ...] = ()
    # Treatments that most of the time did not deliver the asked rate (saturated), or failed requests (invalid)
    stopped: Mapping[str, VerdictLabel] = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """Whether the runs are paired."""
        return bool(self.blocks)

    @property
    def order_known(self) -> bool:
        """Whether every run says when it began."""
        return all(run.start_unix_s is not None for run in self.runs)

    @property
    def runs(self) -> list[Run]:
        """The runs of all treatments, the baseline's first."""
        return [run for treatment in self.by_treatment.values() for run in treatment]

    @property
    def treatments(self) -> list[str]:
        """Every treatment but the baseline."""
        return [name for name in self.by_treatment if name != self.baseline]


def refuse(findings: Sequence[Finding], force: bool) -> None:
    """Stop at what forbids the comparison, all of it at once, one reason a line, unless the user insists."""
    reasons = [finding.message for finding in findings if finding.blocking]
    if reasons and not force:
        listed = "\n".join(f"  - {reason}" for reason in reasons)
        raise UsageError(f"these results cannot be compared:\n{listed}\n  force compares all the same, and says so")
