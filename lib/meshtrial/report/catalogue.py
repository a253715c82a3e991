"""The catalogue of reports: what was asked, when, what came out, where the files are; and its page, the index.

Each run leaves a small JSON file beside its HTML, its entry, and the catalogue trusts nothing else: a report whose
entry is missing or broken is listed with that reason, never left out. The index, `meshtrial open` and the site choose
from it.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from meshtrial import __version__
from meshtrial.design.plan import Plan
from meshtrial.errors import UsageError
from meshtrial.records.dataset import StudyData
from meshtrial.records.listing import recorded_in
from meshtrial.records.store import write_json, write_text
from meshtrial.report import frames
from meshtrial.report.markup import render, style_sheet
from meshtrial.report.tables.headline import headlines
from meshtrial.typed import read

SCHEMA = "meshtrial.report/1"
STATUSES = ("whole", "failed", "interrupted")
_MARKS = {"whole": ("●", "mt-same"), "failed": ("✕", "mt-stopped"), "interrupted": ("◇", "mt-open")}
_UNKNOWN = ("?", "mt-open")


@dataclass(frozen=True)
class Entry:
    """What the index knows of one report; files are named as seen from its folder, empty where there is none."""

    study: str
    title: str
    status: str  # whole, failed or interrupted; `message` says why
    date: str  # ISO 8601, UTC: start of the first run, or the time of writing
    message: str = ""
    treatments: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    blocks: int = 0  # taking part in the inference
    blocks_planned: int = 0
    headlines: tuple[str, ...] = ()  # a sentence a load
    html: str = ""
    notebook: str = ""
    data: str = ""
    plan_sha256: str = ""
    schema: str = SCHEMA


@dataclass(frozen=True)
class Report:
    """A report, its notebook or its entry, by the name that they share; without the entry, why it cannot be read."""

    stem: Path
    entry: Entry | None
    why: str = ""

    def file(self, suffix: str) -> Path:
        """One of its files, whether it is there or not."""
        return self.stem.with_name(self.stem.name + suffix)

    @cached_property
    def records(self) -> Path | None:
        """The folder of its records; None where there is none, or nobody knows."""
        return (self.stem.parent / self.entry.data).resolve() if self.entry and self.entry.data else None


def reports(folder: Path) -> list[Report]:
    """Every report of a folder and those below it, by their names."""
    stems = {path.with_suffix("") for suffix in ("html", "json", "ipynb") for path in folder.rglob(f"*.{suffix}")}
    found = []
    for stem in sorted(stems - {folder / "index"}):
        if ".ipynb_checkpoints" not in stem.parts:
            try:
                found.append(Report(stem, read_entry(stem.with_name(stem.name + ".json"))))
            except UsageError as error:
                found.append(Report(stem, None, str(error)))
    return found


def write_entry(
    html_path: Path,
    *,
    study: str,
    status: str,
    notebook: Path | None = None,
    data: StudyData | None = None,
    plan: Plan | None = None,
    data_dir: Path | None = None,
    message: str = "",
) -> Path:
    """Write ``<stem>.json`` beside a report, whether that could be written or not.

    A study that was read back says all of it; of one that did not come so far `plan` and `data_dir` are what is known.
    `message` is the reason where the status is not ``whole``; the notebook lies beside the report, if nowhere else.
    """
    if status not in STATUSES:
        raise UsageError(f"status = {status!r}: must be {', '.join(STATUSES)}")
    folder = html_path.parent
    known: dict[str, Any] = {"title": study, "date": utc_text(None)}
    if data is not None:
        plan, data_dir = data.plan, data.path
        known["date"] = utc_text(data.began_unix_s)
        known["blocks"], _ = frames.blocks_of(data)
        known["headlines"] = headlines(data)
    if plan is not None:
        known["title"], known["plan_sha256"] = plan.study.title, plan.sha256
        known["treatments"] = [treatment.name for treatment in plan.study.treatments]
        known["loads"] = [load.label for load in plan.study.loads]
        known["blocks_planned"] = plan.study.blocks
    entry = Entry(
        study=study,
        status=status,
        message=message,
        html=html_path.name,
        notebook=relative(notebook or html_path.with_suffix(".ipynb"), folder),
        data="" if data_dir is None else relative(data_dir, folder),
        **known,
    )
    path = html_path.with_suffix(".json")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(entry))
    return path


def read_entry(path: Path) -> Entry:
    """Read one back; a `UsageError` says why it cannot be, in words for the index."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be read ({error})") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise UsageError(f"{path.name} is not of the form {SCHEMA}")
    known = {field.name for field in fields(Entry)}
    try:
        return read(Entry, {name: value for name, value in raw.items() if name in known})
    except UsageError as error:
        raise UsageError(f"{path.name} is not whole ({error})") from None


def utc_text(unix_s: float | None) -> str:
    """ISO 8601 in UTC; now without a time."""
    utc = datetime.UTC
    moment = datetime.datetime.now(utc) if unix_s is None else datetime.datetime.fromtimestamp(unix_s, utc)
    return moment.isoformat(timespec="seconds")


def relative(path: Path, folder: Path) -> str:
    """Address of a path as seen from a folder."""
    return Path(os.path.relpath(path, folder)).as_posix()


@dataclass(frozen=True)
class _Listed:
    """A report as the index shows it; an empty address stands for a file that is not there."""

    entry: Entry
    page: str
    links: Sequence[tuple[str, str]]

    @property
    def mark(self) -> tuple[str, str]:
        """The sign of its status, and its tone."""
        return _MARKS.get(self.entry.status, _UNKNOWN)

    @property
    def day(self) -> str:
        """When it was measured, as a reader writes it."""
        try:
            return datetime.datetime.fromisoformat(self.entry.date).strftime("%Y-%m-%d %H:%M UTC")
        except ValueError:
            return self.entry.date


def write_index(runs_dir: Path, studies_dir: Path | None = None) -> Path:
    """Write ``index.html`` over every report of a folder, newest first, and over recorded studies that have none."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    found = reports(runs_dir)
    spoken_of = {report.records for report in found}
    recorded = [] if studies_dir is None else recorded_in(studies_dir)
    orphans = [folder for folder in reversed(recorded) if folder.resolve() not in spoken_of]
    page = render(
        "index.html.j2",
        reports=sorted((_listed(runs_dir, report) for report in found), key=lambda one: one.entry.date, reverse=True),
        orphans=[(f"{folder.parent.name}/{folder.name}", _address(runs_dir, folder)) for folder in orphans],
        sheets=[style_sheet("objects.css"), style_sheet("page.css")],
        version=__version__,
    )
    path = runs_dir / "index.html"
    write_text(path, page)
    return path


def _listed(runs_dir: Path, report: Report) -> _Listed:
    known, folder = report.entry or _unread(report), report.stem.parent
    places = [("report", known.html), ("notebook", known.notebook), ("records", known.data)]
    links = [(label, _address(runs_dir, folder / place)) for label, place in places if place]
    page = _address(runs_dir, folder / known.html) if known.html and (folder / known.html).is_file() else ""
    return _Listed(known, page, links)


def _unread(report: Report) -> Entry:
    """What is known of a report whose entry cannot be read: which of its files are there, and why."""
    there = [path for suffix in (".html", ".ipynb", ".json") if (path := report.file(suffix)).exists()]
    names = {path.suffix: path.name for path in there}
    date = utc_text(max(path.stat().st_mtime for path in there))
    return Entry(
        study="",
        title=report.stem.name,
        status="unknown",
        date=date,
        message=report.why,
        html=names.get(".html", ""),
        notebook=names.get(".ipynb", ""),
    )


def _address(runs_dir: Path, path: Path) -> str:
    """Where the file lies as seen from the index; empty where it is not there."""
    if not path.exists():
        return ""
    # "./" keeps a name with a colon from being read as a scheme.
    return "./" + quote(relative(path, runs_dir)) + ("/" if path.is_dir() else "")
