"""What the site knows of a study page: a small JSON file beside it, trusted only as far as it can be read."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from meshtrial.design.study import Treatment
from meshtrial.errors import MeshtrialError, RecordError, UsageError
from meshtrial.inference.export import document
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import read_json, write_text
from meshtrial.report import frames, wording
from meshtrial.report.catalogue import utc_text
from meshtrial.report.tables import clauses
from meshtrial.typed import read, reason
from meshtrial.vocabulary import Word

SCHEMA = "meshtrial.site/2"
SUMMARY = "summary.json"
STUDIES = "studies"
_SETTLED = frozenset(str(word) for word in Word if word.conclusive)


@dataclass(frozen=True)
class Asked:
    """What a study asks, in the names of ``docs/schema/export.schema.json``."""

    name: str
    title: str
    question: str
    backend: str
    app: str
    plan_sha256: str
    treatments: tuple[str, ...]
    baseline: str
    loads: tuple[str, ...]
    primary: tuple[str, ...]
    alpha: float


@dataclass(frozen=True)
class Published:
    """A study as the site lists it."""

    recorded: str  # ISO 8601, UTC: start of the first run
    blocks: int  # taking part in the inference
    blocks_planned: int
    # The verdict, a load each: how the sentence begins, and a clause a treatment.
    headlines: tuple[tuple[str, ...], ...]
    study: Asked
    verdicts: tuple[Mapping[str, Any], ...]  # rows as `verdicts.json` of a study has them
    # Of the page's folder as seen from the site's root, with a slash at its end; known from where it lies.
    address: str = ""

    @classmethod
    def of(cls, data: StudyData, address: str) -> Published:
        """From a study that was analysed and has runs."""
        whole = document(data)
        blocks, planned = frames.blocks_of(data)
        return cls(
            utc_text(data.began_unix_s),
            blocks,
            planned,
            tuple(map(tuple, clauses(data))),
            Asked(**{name: _frozen(value) for name, value in whole["study"].items()}),
            tuple(whole["verdicts"]),
            address,
        )

    @property
    def moment(self) -> datetime.datetime:
        """When its first run began."""
        return datetime.datetime.fromisoformat(self.recorded)

    @property
    def day(self) -> str:
        """The same as a reader writes it: 21 November 2026."""
        return f"{self.moment.day} {self.moment:%B %Y}"

    @property
    def heading(self) -> str:
        """The study's title with what was measured and where: several studies of a site may ask the same."""
        treatments = list(map(_read_treatment, self.study.treatments))
        planes = dict.fromkeys(one.versioned for one in treatments if one.dataplane != "none")
        apps = dict.fromkeys(one.app for one in treatments if one.app)
        said = f": {wording.listing(list(planes))}" if planes else ""
        said += f" with {wording.listing(list(apps))}" if apps else ""
        return f"{self.study.title}{said}, on {'a cluster' if self.study.backend == 'kubernetes' else 'one machine'}"

    @property
    def title(self) -> str:
        """The same and when it began."""
        return f"{self.heading} ({self.day}, {self.moment:%H:%M} UTC)"

    @property
    def settled(self) -> int:
        """Contrasts of primary responses, but for the A/A twin's, in which something was shown."""
        rows = [row for row in self.verdicts if not row.get("twin") and not row.get("exploratory")]
        return sum(str(row.get("verdict")) in _SETTLED for row in rows)

    @property
    def weight(self) -> tuple[bool, int]:
        """How much a study settles: of meshes before that of stand-ins, then by what was shown."""
        return self.study.backend == "kubernetes", self.settled

    @property
    def sentence(self) -> str:
        """The verdict of all loads, as one text."""
        return " ".join(part for load in self.headlines for part in load)

    @property
    def where(self) -> str:
        """What it was measured on."""
        return "a Kubernetes cluster" if self.study.backend == "kubernetes" else "one machine, reference data planes"

    def to_dict(self) -> dict[str, Any]:
        """As ``verdicts.json`` of the site has it; ``docs/schema/site.schema.json`` describes it."""
        return asdict(self)

    def write(self, folder: Path) -> None:
        """Write it beside the page."""
        body = {name: value for name, value in self.to_dict().items() if name != "address"}
        write_text(folder / SUMMARY, as_json({"schema": SCHEMA, **body}))


def as_json(data: Any) -> str:
    """JSON as the site's files have it: small, and of one kind everywhere."""
    return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"


def all_published(root: Path) -> tuple[list[Published], list[tuple[str, str]]]:
    """Every study page of a site, the newest first; and the addresses of those that cannot be read, with the reason."""
    found, broken = [], []
    for path in sorted(root.glob(f"{STUDIES}/*/*/{SUMMARY}")):
        address = path.parent.relative_to(root).as_posix() + "/"
        try:
            found.append(replace(read_published(path), address=address))
        except MeshtrialError as error:
            # The reason is published too: no folder of this machine is in it.
            broken.append((address, str(error).replace(f"{root}/", "")))
    return sorted(found, key=lambda one: (one.moment, one.address), reverse=True), broken


def read_published(path: Path) -> Published:
    """Read one back; where it lies is for the caller to say."""
    raw = read_json(path)
    if raw.get("schema") != SCHEMA:
        raise RecordError(f"{path}: is not of the form {SCHEMA}; publish the study again")
    try:
        published = read(Published, {name: value for name, value in raw.items() if name != "schema"})
        if published.moment.utcoffset() != datetime.timedelta(0):
            raise UsageError(f"recorded is {published.recorded}")
        if not (published.headlines and all(published.headlines)):
            raise UsageError("a headline is empty")
    except (UsageError, ValueError) as error:
        raise RecordError(f"{path}: is not whole ({reason(error)}); publish the study again") from None
    return published


def _read_treatment(name: str) -> Treatment:
    """A treatment; a name that is none, out of a file that anybody may have written, as it stands."""
    try:
        return Treatment.parse(name)
    except UsageError:
        return Treatment(name)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
