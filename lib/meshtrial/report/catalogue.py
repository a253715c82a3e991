"""The catalogue of reports: one entry per report, and the index page over all of them.

Each run writes a small JSON file, its entry, beside its HTML. The catalogue reads entries only: a report whose entry
is missing or broken is listed with the reason. The index, `meshtrial open` and the site read the catalogue.
"""

import datetime
import json
import os
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from meshtrial.design.plan import Plan
from meshtrial.errors import UsageError
from meshtrial.records.dataset import StudyData
from meshtrial.records.listing import recorded_in
from meshtrial.records.store import write_json, write_text
from meshtrial.report import frames
from meshtrial.report.markup import render
from meshtrial.report.tables.headline import headlines
from meshtrial.typed import read

SCHEMA = "meshtrial.report/1"


@dataclass(frozen=True)
class Entry:
    """One report, as the index lists it. Files are relative to the entry's folder, and empty where there is none."""

    study: str
    title: str
    status: str  # whole, failed or interrupted, which `message` explains
    date: str  # ISO 8601, UTC: start of the first run, or the time of writing
    message: str = ""
    treatments: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    blocks: int = 0  # taking part in the inference
    blocks_planned: int = 0
    headlines: tuple[str, ...] = ()  # one sentence per load
    html: str = ""
    notebook: str = ""
    data: str = ""
    plan_sha256: str = ""
    schema: str = SCHEMA


@dataclass(frozen=True)
class Report:
    """A report, found by the common name of its files. `why` says why its entry could not be read."""

    stem: Path
    entry: Entry | None
    why: str = ""

    def file(self, suffix: str) -> Path:
        """Return the path of one of its files, which may not exist."""
        return self.stem.with_name(self.stem.name + suffix)

    @cached_property
    def records(self) -> Path | None:
        """The folder of its records, or None if the entry names none."""
        return (self.stem.parent / self.entry.data).resolve() if self.entry and self.entry.data else None


def reports(folder: Path) -> list[Report]:
    """Return every report in a folder and its subfolders, sorted by path."""
    stems = {path.with_suffix("") for suffix in ("html", "json", "ipynb") for path in folder.rglob(f"*.{suffix}")}
    listed = []
    for stem in sorted(stems - {folder / "index"}):
        if ".ipynb_checkpoints" not in stem.parts:
            try:
                listed.append(Report(stem, read_entry(stem.with_name(stem.name + ".json"))))
            except UsageError as error:
                listed.append(Report(stem, None, str(error)))
    return listed


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
    """Write ``<stem>.json`` beside a report, even if the report itself could not be written.

    Parameters
    ----------
    data : StudyData, optional
        The study. If it could not be read, `plan` and `data_dir` are recorded instead.
    message : str, optional
        The reason for any status but ``whole``.
    notebook : Path, optional
        Defaults to the notebook beside the report.
    """
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
        notebook=_relative(notebook or html_path.with_suffix(".ipynb"), folder),
        data="" if data_dir is None else _relative(data_dir, folder),
        **known,
    )
    path = html_path.with_suffix(".json")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(entry))
    return path


def read_entry(path: Path) -> Entry:
    """Read an entry, or raise `UsageError` with a reason that the index can show."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be read ({error})") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise UsageError(f"{path.name} does not have the schema {SCHEMA}")
    known = {field.name for field in fields(Entry)}
    try:
        return read(Entry, {name: value for name, value in raw.items() if name in known})
    except UsageError as error:
        raise UsageError(f"{path.name} is incomplete ({error})") from None


def utc_text(unix_s: float | None) -> str:
    """Return a time, or the current time, in ISO 8601 and UTC."""
    utc = datetime.UTC
    moment = datetime.datetime.now(utc) if unix_s is None else datetime.datetime.fromtimestamp(unix_s, utc)
    return moment.isoformat(timespec="seconds")


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


# The symbol of each status and the symbol's CSS class.
_MARKS = {"whole": ("●", "mt-same"), "failed": ("✕", "mt-stopped"), "interrupted": ("◇", "mt-open")}


def write_index(runs_dir: Path, studies_dir: Path | None = None) -> Path:
    """Write ``index.html``: all reports of a folder, newest first, then recorded studies that have no report."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    listed = reports(runs_dir)
    reported = {report.records for report in listed}
    recorded = [] if studies_dir is None else recorded_in(studies_dir)
    orphans = [folder for folder in reversed(recorded) if folder.resolve() not in reported]
    page = render(
        "index.html.j2",
        reports=sorted((_shown(runs_dir, report) for report in listed), key=lambda one: one["date"], reverse=True),
        orphans=[(f"{folder.parent.name}/{folder.name}", _address(runs_dir, folder)) for folder in orphans],
    )
    path = runs_dir / "index.html"
    write_text(path, page)
    return path


def _shown(runs_dir: Path, report: Report) -> dict[str, Any]:
    """Return what the index shows of a report. A link with an empty address stands for a missing file."""
    known, folder = report.entry, report.stem.parent
    if known is None:  # its entry cannot be read: the reason, and which of its files exist
        existing = [path for suffix in (".html", ".ipynb", ".json") if (path := report.file(suffix)).exists()]
        names = {path.suffix: path.name for path in existing}
        date = utc_text(max(path.stat().st_mtime for path in existing))
        html, notebook = names.get(".html", ""), names.get(".ipynb", "")
        known = Entry("", report.stem.name, "unknown", date, report.why, html=html, notebook=notebook)
    places = [("report", known.html), ("notebook", known.notebook), ("records", known.data)]
    try:
        day = datetime.datetime.fromisoformat(known.date).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        day = known.date
    return {
        "entry": known,
        "date": known.date,
        "day": day,
        "mark": _MARKS.get(known.status, ("?", "mt-open")),
        "page": _address(runs_dir, folder / known.html) if known.html and (folder / known.html).is_file() else "",
        "links": [(label, _address(runs_dir, folder / place)) for label, place in places if place],
    }


def _address(runs_dir: Path, path: Path) -> str:
    """Return the address of a file relative to the index, or an empty text if it does not exist."""
    if not path.exists():
        return ""
    # "./" keeps a name with a colon from being read as a scheme.
    return "./" + quote(_relative(path, runs_dir)) + ("/" if path.is_dir() else "")
