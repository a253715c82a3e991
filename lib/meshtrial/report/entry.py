"""An entry of the index over all reports: a small JSON file beside a report, trusted only as far as it can be read."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from meshtrial.design.plan import Plan
from meshtrial.errors import UsageError
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_json
from meshtrial.report import frames
from meshtrial.report.tables.headline import headlines
from meshtrial.typed import read

SCHEMA = "meshtrial.report/1"
STATUSES = ("whole", "failed", "interrupted")


@dataclass(frozen=True)
class Entry:
    """What the index knows of one report.

    Attributes
    ----------
    status : str
        ``whole``, ``failed`` or ``interrupted``; ``message`` says why.
    date : str
        ISO 8601, UTC: start of the first run, or the time of writing.
    blocks, blocks_planned : int
        Taking part in the inference, and planned.
    headlines : tuple of str
        A sentence a load.
    html, notebook, data : str
        Relative to the entry's folder; empty where there is none.
    """

    study: str
    title: str
    status: str
    date: str
    message: str = ""
    treatments: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    blocks: int = 0
    blocks_planned: int = 0
    headlines: tuple[str, ...] = ()
    html: str = ""
    notebook: str = ""
    data: str = ""
    plan_sha256: str = ""
    schema: str = SCHEMA

    def records(self, page: Path) -> Path | None:
        """The folder of the records, of the entry beside this page; None where there is none."""
        return (page.parent / self.data).resolve() if self.data else None


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
    """Write ``<stem>.json`` beside a report.

    Parameters
    ----------
    html_path : Path
        The report, whether it could be written or not.
    study : str
        The notebook's name.
    status : {"whole", "failed", "interrupted"}
    notebook : Path, optional
        Beside the HTML under the same stem without it.
    data : StudyData, optional
        With it everything else is known.
    plan, data_dir : optional
        What is known of a study that did not come far enough to be read back.
    message : str
        The reason, where the status is not ``whole``.
    """
    if status not in STATUSES:
        raise UsageError(f"status = {status!r}: allowed is {', '.join(STATUSES)}")
    folder = html_path.parent
    known: dict[str, Any] = {"title": study, "date": utc_text(None)}
    if data is not None:
        plan, data_dir = data.plan, data.path
        known["date"] = utc_text(data.began_unix_s)
        known["blocks"] = min((frames.blocks_of(data, load)[0] for load in frames.loads(data)), default=0)
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
    """Read one back.

    Raises
    ------
    UsageError
        With the reason, in words for the index.
    """
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


def read_entries(folder: Path) -> dict[Path, Entry]:
    """The reports of a folder by their pages; without those whose entry is missing or broken, which the index names."""
    entries = {}
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(UsageError):
            entries[path.with_suffix(".html")] = read_entry(path)
    return entries


def utc_text(unix_s: float | None) -> str:
    """ISO 8601 in UTC; now without a time."""
    utc = datetime.UTC
    moment = datetime.datetime.now(utc) if unix_s is None else datetime.datetime.fromtimestamp(unix_s, utc)
    return moment.isoformat(timespec="seconds")


def relative(path: Path, folder: Path) -> str:
    """Address of a path as seen from a folder."""
    return Path(os.path.relpath(path, folder)).as_posix()
