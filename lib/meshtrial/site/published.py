"""A study's entry on a site: a small JSON file in the folder of its page, checked when it is read."""

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from meshtrial.design.study import Treatment
from meshtrial.errors import MeshtrialError, RecordError, UsageError
from meshtrial.inference.export import document
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import read_json, write_text
from meshtrial.report import frames, wording
from meshtrial.report.catalogue import utc_text
from meshtrial.report.tables import clauses
from meshtrial.typed import of_schema, read, reason
from meshtrial.vocabulary import VerdictLabel

SCHEMA = "meshtrial.site/2"
SUMMARY = "summary.json"
STUDIES = "studies"
_SETTLED = frozenset(str(word) for word in VerdictLabel if word.conclusive)


@dataclass(frozen=True)
class Asked:
    """The question of a study, with the names of ``docs/schema/export.schema.json``."""

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
    """A study in the list of the site."""

    recorded: str  # ISO 8601, UTC: start of the first run
    blocks: int  # included in the inference
    blocks_planned: int
    # The verdict at each load: the beginning of the sentence, and a clause for each treatment.
    headlines: Annotated[tuple[Annotated[tuple[str, ...], Meta(min_length=1)], ...], Meta(min_length=1)]
    study: Asked
    verdicts: tuple[Mapping[str, Any], ...]  # rows of the study's `verdicts.json`
    # Folder of the page relative to the site's root, with a slash at its end; not stored in the file.
    address: str = ""

    @property
    def moment(self) -> datetime.datetime:
        """The start of its first run."""
        return datetime.datetime.fromisoformat(self.recorded)

    @property
    def day(self) -> str:
        """The day of its first run, e.g. 21 November 2026."""
        return f"{self.moment.day} {self.moment:%B %Y}"

    @property
    def heading(self) -> str:
        """The title with treatments and place, because several studies of a site may ask the same question."""
        treatments = list(map(_read_treatment, self.study.treatments))
        planes = dict.fromkeys(treatment.versioned for treatment in treatments if treatment.dataplane != "none")
        apps = dict.fromkeys(treatment.app for treatment in treatments if treatment.app)
        details = f": {wording.listing(list(planes))}" if planes else ""
        details += f" with {wording.listing(list(apps))}" if apps else ""
        return f"{self.study.title}{details}, on {'a cluster' if self.study.backend == 'kubernetes' else 'one machine'}"

    @property
    def weight(self) -> tuple[bool, int]:
        """Sort key: studies on a cluster first, then by the number of conclusive primary contrasts without the twin."""
        rows = [row for row in self.verdicts if not row.get("twin") and not row.get("exploratory")]
        return self.study.backend == "kubernetes", sum(str(row.get("verdict")) in _SETTLED for row in rows)


def described(data: StudyData, address: str) -> Published:
    """Return the entry of an analysed study in the list of a site."""
    exported = document(data)
    blocks, planned = frames.blocks_of(data)
    return read(
        Published,
        {
            "recorded": utc_text(data.began_unix_s),
            "blocks": blocks,
            "blocks_planned": planned,
            "headlines": clauses(data),
            "study": exported["study"],
            "verdicts": exported["verdicts"],
            "address": address,
        },
    )


def write_summary(published: Published, folder: Path) -> None:
    """Write the entry of a study into the folder of its page."""
    body = {name: value for name, value in asdict(published).items() if name != "address"}
    write_text(folder / SUMMARY, as_json({"schema": SCHEMA, **body}))


def as_json(data: Any) -> str:
    """Return compact JSON for the site's files."""
    return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"


def all_published(root: Path) -> tuple[list[Published], list[tuple[str, str]]]:
    """Return all study pages of a site, newest first, and the addresses of unreadable ones with the reason."""
    found, broken = [], []
    for path in sorted(root.glob(f"{STUDIES}/*/*/{SUMMARY}")):
        address = path.parent.relative_to(root).as_posix() + "/"
        try:
            found.append(replace(read_summary(path), address=address))
        except MeshtrialError as error:
            # The reason is published, so it must not contain a path of this machine.
            broken.append((address, str(error).replace(f"{root}/", "")))
    return sorted(found, key=lambda study: (study.moment, study.address), reverse=True), broken


def read_summary(path: Path) -> Published:
    """Read an entry; the caller sets its address. RecordError if it is invalid."""
    body = of_schema(read_json(path), SCHEMA, str(path))
    try:
        published = read(Published, body)
        if published.moment.utcoffset() != datetime.timedelta(0):
            raise UsageError(f"recorded is {published.recorded}")
    except (UsageError, ValueError) as error:
        raise RecordError(f"{path}: is invalid or incomplete ({reason(error)}); publish the study again") from None
    return published


def _read_treatment(name: str) -> Treatment:
    """Parse a treatment; return an invalid name unchanged, because the file may have been edited."""
    try:
        return Treatment.parse(name)
    except UsageError:
        return Treatment(name)
