"""What the site knows of a study page: a small JSON file beside it, trusted only as far as it can be read."""

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
    # The verdict of each load: how the sentence begins, and a clause for each treatment.
    headlines: Annotated[tuple[Annotated[tuple[str, ...], Meta(min_length=1)], ...], Meta(min_length=1)]
    study: Asked
    verdicts: tuple[Mapping[str, Any], ...]  # rows as `verdicts.json` of a study has them
    # Of the page's folder as seen from the site's root, with a slash at its end; known from where it lies.
    address: str = ""

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
    def weight(self) -> tuple[bool, int]:
        """How much a study settles: one of meshes before one of stand-ins, then by the number of primary contrasts,
        but for the A/A twin's, in which something was shown.
        """
        rows = [row for row in self.verdicts if not row.get("twin") and not row.get("exploratory")]
        return self.study.backend == "kubernetes", sum(str(row.get("verdict")) in _SETTLED for row in rows)


def described(data: StudyData, address: str) -> Published:
    """A study that was analysed and has runs, as a site lists it."""
    whole = document(data)
    blocks, planned = frames.blocks_of(data)
    return read(
        Published,
        {
            "recorded": utc_text(data.began_unix_s),
            "blocks": blocks,
            "blocks_planned": planned,
            "headlines": clauses(data),
            "study": whole["study"],
            "verdicts": whole["verdicts"],
            "address": address,
        },
    )


def write_summary(published: Published, folder: Path) -> None:
    """Write what the site keeps of a study beside its page."""
    body = {name: value for name, value in asdict(published).items() if name != "address"}
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
            found.append(replace(read_summary(path), address=address))
        except MeshtrialError as error:
            # The reason is published too: no folder of this machine is in it.
            broken.append((address, str(error).replace(f"{root}/", "")))
    return sorted(found, key=lambda one: (one.moment, one.address), reverse=True), broken


def read_summary(path: Path) -> Published:
    """Read one back; where it lies is for the caller to say."""
    body = of_schema(read_json(path), SCHEMA, str(path))
    try:
        published = read(Published, body)
        if published.moment.utcoffset() != datetime.timedelta(0):
            raise UsageError(f"recorded is {published.recorded}")
    except (UsageError, ValueError) as error:
        raise RecordError(f"{path}: is not whole ({reason(error)}); publish the study again") from None
    return published


def _read_treatment(name: str) -> Treatment:
    """A treatment; a name that is none, out of a file that anybody may have written, as it stands."""
    try:
        return Treatment.parse(name)
    except UsageError:
        return Treatment(name)
