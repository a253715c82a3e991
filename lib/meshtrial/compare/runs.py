"""A run of a named treatment, as plain data, and what was found wrong with a set of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meshtrial.errors import UsageError
from meshtrial.load.settings import LoadSettings
from meshtrial.vocabulary import Warning


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes
    ----------
    treatment, name : str
        The treatment, and what the user knows the run by: its file (or folder), or the table's column ``run``.
    kind : str
        ``fortio``, ``nighthawk``, ``access log``, ``table``, or another generator's form.
    values : mapping of str to float
        Response to value; SI base units for registered responses.
    bounds : mapping of str to float
        Resolution in seconds of a quantile: its histogram bucket, or the log's microsecond.
    sources : mapping of Path to str
        Files read, with their SHA-256.
    settings : LoadSettings or None
        The load as it was asked for; None where the input does not say.
    block : str or None
        What it is paired by.
    start_unix_s : float or None
    requests : int or None
        Successful ones decide how far into the tail a quantile may be reported.
    notes : tuple of str
    further : str
        How a file of this kind comes to hold further percentiles; empty where its requests decide.
    """

    treatment: str
    name: str
    kind: str
    values: Mapping[str, float]
    bounds: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[Path, str] = field(default_factory=dict)
    settings: LoadSettings | None = None
    block: str | None = None
    start_unix_s: float | None = None
    requests: int | None = None
    notes: tuple[str, ...] = ()
    further: str = ""


@dataclass(frozen=True)
class Finding(Warning):
    """What a reader must know; a blocking one is refused unless the user insists."""

    blocking: bool


@dataclass(frozen=True)
class Sample:
    """The runs of all treatments.

    Attributes
    ----------
    by_treatment : mapping of str to sequence of Run
        The baseline first.
    baseline : str
    blocks : tuple of str
        Labels of the pairs, in order; empty where the runs are not paired.
    pairing : str
        In words, how the pairs were formed; empty where they are not.
    findings : tuple of Finding
    saturated : mapping of str to str
        Treatments that did not deliver the asked rate in most of their runs, with the reason.
    invalid : mapping of str to str
        Treatments whose requests failed in most of their runs, with the reason.
    """

    by_treatment: Mapping[str, Sequence[Run]]
    baseline: str
    blocks: tuple[str, ...] = ()
    pairing: str = ""
    findings: tuple[Finding, ...] = ()
    saturated: Mapping[str, str] = field(default_factory=dict)
    invalid: Mapping[str, str] = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """Whether the runs are paired."""
        return bool(self.blocks)

    @property
    def runs(self) -> list[Run]:
        """The runs of all treatments, the baseline's first."""
        return [run for treatment in self.by_treatment.values() for run in treatment]

    @property
    def treatments(self) -> list[str]:
        """Every treatment but the baseline."""
        return [name for name in self.by_treatment if name != self.baseline]


def refuse(findings: Sequence[Finding], force: bool) -> None:
    """Stop at what forbids the comparison, all of it at once, unless the user insists.

    Raises
    ------
    UsageError
        Every reason, one a line.
    """
    reasons = [finding.message for finding in findings if finding.blocking]
    if reasons and not force:
        listed = "\n".join(f"  - {reason}" for reason in reasons)
        raise UsageError(f"these results cannot be compared:\n{listed}\n  force compares all the same, and says so")
