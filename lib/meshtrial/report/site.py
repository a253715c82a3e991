"""Recorded studies as a static web site: a front page with verdicts as JSON and a feed, and one page per study.

The address of a study's page follows from its name, the time of its first run and its plan's digest, so it never
changes. Its folder also contains the published report, the data, the records, and a small JSON file with the study's
entry in the list. The list of studies is read from these files: publishing another study adds a page and removes none.
The feed is RSS 2.0 (https://www.rssboard.org/rss-specification), one item per study. It contains no build time, so the
same studies give the same bytes.
"""

import datetime
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from email.utils import format_datetime
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from meshtrial import paths
from meshtrial.design.study import Treatment
from meshtrial.errors import MeshtrialError, RecordError, UsageError, writing
from meshtrial.inference.export import document, export
from meshtrial.records.dataset import StudyData
from meshtrial.records.packed import PARTS, pack
from meshtrial.records.store import PLAN, read_json, write_text
from meshtrial.report import figures, frames, report_seal, tables, wording
from meshtrial.report.catalogue import utc_text
from meshtrial.report.markup import render
from meshtrial.report.summary import one_line
from meshtrial.report.tables import clauses
from meshtrial.typed import of_schema, read, reason
from meshtrial.vocabulary import VerdictLabel

INDEX, VERDICTS, FEED = "index.html", "verdicts.json", "feed.xml"
REPORT, RECORDS = "report.html", "records.tar.xz"  # in the folder of a study's page, which is an index.html, too
SCHEMAS = Path("docs", "schema")  # the same path in the checkout and in every site
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
        treatments = []
        for name in self.study.treatments:
            try:
                treatments.append(Treatment.parse(name))
            except UsageError:  # the file may have been edited
                treatments.append(Treatment(name))
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


def refuse_foreign(root: Path) -> None:
    """Raise UsageError if a folder cannot hold a site: the checkout, a study, or another web page."""
    is_foreign = (root / INDEX).exists() and not (root / VERDICTS).is_file()
    if is_foreign or root.is_file() or root == paths.CHECKOUT or (root / PLAN).exists():
        raise UsageError(
            f"{root}: is a file, the checkout, a study or another web page; "
            "name the folder of the site first, then the studies"
        )


def checked_base(url: str) -> str:
    """Return the address of a site with a slash at its end; UsageError if it is invalid."""
    if not re.fullmatch(r"https?://[^\s?#/:\[\]]+(:\d+)?(/[^\s?#]*)?", url):
        raise UsageError(f"--base-url {url}: invalid address; give one like https://example.org/meshes/")
    return url if url.endswith("/") else url + "/"


def write_site_index(
    root: Path, studies: Sequence[Published], broken: Sequence[tuple[str, str]] = (), base_url: str = ""
) -> Path:
    """Write ``index.html``, ``verdicts.json`` with its schemas and, if ``base_url`` is known, ``feed.xml``.

    ``studies`` and ``broken`` are from `all_published`; broken pages are listed with the reason. ``base_url`` is from
    `checked_base`, because a feed needs absolute links.
    """
    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(paths.CHECKOUT / SCHEMAS, root / SCHEMAS, dirs_exist_ok=True)
    write_text(root / VERDICTS, as_json({"schema": SCHEMA, "studies": [asdict(study) for study in studies]}))
    if base_url:
        # one_line removes characters that XML does not allow.
        feed = render("site/feed.xml.j2", studies=studies, base=base_url, date=format_datetime, line=one_line)
        write_text(root / FEED, feed)
    page = render(
        "site/index.html.j2",
        # The sort is stable: of studies of equal weight the newest stays first.
        studies=sorted(studies, key=lambda study: study.weight, reverse=True),
        broken=broken,
        has_feed=(root / FEED).is_file(),
    )
    write_text(root / INDEX, page)
    return root / INDEX


def address(data: StudyData) -> str:
    """Return the address of a study's page in any site, from its name, its first run and its plan's digest."""
    name, began = data.plan.study.name, data.began_unix_s
    if began is None:
        raise RecordError(f"{data.path}: contains no run yet; there is nothing to publish")
    try:
        stamp = datetime.datetime.fromtimestamp(began, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    except (OverflowError, ValueError, OSError):
        raise RecordError(f"{data.path}: invalid start of its first run ({began})") from None
    if not re.fullmatch(r"\w[\w.-]*", name, flags=re.ASCII):
        raise RecordError(f"{data.path}: the study's name {name!r} cannot be a folder of a site")
    return f"{STUDIES}/{name}/{stamp}-{data.plan.sha256[:8]}/"


def matches_records(report: Path, data: StudyData) -> bool:
    """Return whether a report exists that was made from this plan and these verdicts."""
    seal = report_seal(report) if report.is_file() else {}
    return (seal.get("plan"), seal.get("verdicts")) == (data.plan.sha256, tables.verdicts_sha256(data))


def publish(data: StudyData, report: Path, root: Path) -> Published:
    """Write a study's folder: page, report, data and records.

    An earlier report with different verdicts is kept under another name.
    """
    published = described(data, address(data))
    folder = root / published.address
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _place(report, folder / REPORT)
        export(data, folder)
        pack(data.path, folder / RECORDS, tuple(PARTS))
        write_summary(published, folder)
        page = render(
            "site/study.html.j2",
            published=published,
            verdict=[tables.verdict_sentence(data), figures.forest(data), tables.verdict_table(data)],
            sizes={path.name: f"{path.stat().st_size / 1e6:.2f} MB" for path in folder.iterdir()},
            earlier=sorted(path.name for path in folder.glob("report-*.html")),
            citation=tables.citation(data),
            root="../" * published.address.count("/"),
        )
        write_text(folder / INDEX, page)
    return published


def _place(report: Path, target: Path) -> None:
    if report == target:
        return
    if target.is_file():
        earlier = report_seal(target).get("verdicts", "")
        if earlier != report_seal(report).get("verdicts") and re.fullmatch(r"[0-9a-f]{64}", earlier):
            target.rename(target.with_name(f"report-{earlier[:8]}.html"))
    shutil.copyfile(report, target)
