"""The runs of a comparison, and findings on them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial.errors import UsageError
from meshtrial.load.recorded import Recorded
from meshtrial.vocabulary import VerdictLabel, Warning


@dataclass(frozen=True)
class Run(Recorded):
    """What was recorded of one run of a treatment, in files or in rows of a table."""

    treatment: str = field(kw_only=True)
    name: str = field(kw_only=True)  # its file or folder, or the table's column `run`
    sources: Mapping[Path, str] = field(default_factory=dict, kw_only=True)  # files read, with their SHA-256
    block: str | None = field(default=None, kw_only=True)  # runs of one block are paired

    @property
    def requests(self) -> int | None:
        """Number of successful requests, which limits the highest percentile; None for a table."""
        requests = None if self.kind == "table" else self.responses.get("requests")
        return None if requests is None else round(requests * (1 - self.responses.get("error_ratio", 0.0)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        load = None
        if self.settings is not None:
            skipped = ("path", "latency", "errors", "url")
            values = {field.name: getattr(self.settings, field.name) for field in dataclasses.fields(self.settings)}
            load = {name: value for name, value in values.items() if name not in skipped and value is not None}
        return {
            "treatment": self.treatment,
            "run": self.name,
            "block": self.block,
            "kind": self.kind,
            "files": {str(path): digest for path, digest in self.sources.items()},
            "start_unix_s": self.start_unix_s,
            "responses": dict(self.responses),
            "bounds": dict(self.bounds),
            "load": load,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Finding(Warning):
    """A warning on the runs; a blocking one forbids the comparison unless it is forced."""

    blocking: bool


@dataclass(frozen=True)
class Sample:
    """The runs of all treatments."""

    by_treatment: Mapping[str, Sequence[Run]]  # the baseline first
    baseline: str
    blocks: tuple[str, ...] = ()  # in order; empty if the runs are not paired
    pairing: str = ""  # how the pairs were formed; empty if not paired
    findings: tuple[Finding, ...] = ()
    # Treatments that missed the requested rate (saturated) or failed requests (invalid) in most runs.
    stopped: Mapping[str, VerdictLabel] = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """Whether the runs are paired."""
        return bool(self.blocks)

    @property
    def order_known(self) -> bool:
        """Whether the start of every run is known."""
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
    """Raise UsageError with all findings that forbid the comparison, one per line, unless it is forced."""
    reasons = [finding.message for finding in findings if finding.blocking]
    if reasons and not force:
        listed = "\n".join(f"  - {reason}" for reason in reasons)
        raise UsageError(f"these results cannot be compared:\n{listed}\n  force compares them anyway, with warnings")
