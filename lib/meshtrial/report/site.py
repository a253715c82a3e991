"""The index over all reports: what was asked, when, what came out, and where the files are.

Each run leaves a small JSON file beside its HTML, its entry. The index trusts nothing else: a report whose entry is
missing or broken is listed with that reason, never left out.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from meshtrial import __version__
from meshtrial.errors import UsageError
from meshtrial.records.listing import recorded_in
from meshtrial.records.store import write_text
from meshtrial.report.entry import Entry, read_entry, relative, utc_text, write_entry
from meshtrial.report.markup import render, style_sheet

__all__ = ["Entry", "read_entry", "write_entry", "write_index"]
_MARKS = {"whole": ("●", "mt-same"), "failed": ("✕", "mt-stopped"), "interrupted": ("◇", "mt-open")}
_UNKNOWN = ("?", "mt-open")


@dataclass(frozen=True)
class _Listed:
    """A report as the index shows it; an empty address stands for a file that is not there."""

    date: str
    title: str
    address: str
    status: str
    meta: str
    lines: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    @property
    def glyph(self) -> str:
        return _MARKS.get(self.status, _UNKNOWN)[0]

    @property
    def tone(self) -> str:
        return _MARKS.get(self.status, _UNKNOWN)[1]


def write_index(runs_dir: Path, studies_dir: Path | None = None) -> Path:
    """Write ``index.html`` over every report of a folder, newest first.

    Parameters
    ----------
    runs_dir : Path
        Where executed notebooks, reports and their entries lie.
    studies_dir : Path, optional
        Where records lie; studies there without a report are listed too.

    Returns
    -------
    Path
    """
    runs_dir.mkdir(parents=True, exist_ok=True)
    stems = sorted(
        {path.with_suffix("") for suffix in ("html", "json", "ipynb") for path in runs_dir.rglob(f"*.{suffix}")}
        - {runs_dir / "index"}
    )
    stems = [stem for stem in stems if ".ipynb_checkpoints" not in stem.parts]
    page = render(
        "index.html.j2",
        reports=sorted((_listed(runs_dir, stem) for stem in stems), key=lambda report: report.date, reverse=True),
        orphans=_without_report(runs_dir, studies_dir, stems),
        sheets=[style_sheet("objects.css"), style_sheet("page.css")],
        version=__version__,
    )
    path = runs_dir / "index.html"
    write_text(path, page)
    return path


def _listed(runs_dir: Path, stem: Path) -> _Listed:
    base = stem.parent
    try:
        known = read_entry(stem.with_name(stem.name + ".json"))
    except UsageError as error:
        existing = [stem.with_name(stem.name + suffix) for suffix in (".html", ".ipynb", ".json")]
        date = utc_text(max(path.stat().st_mtime for path in existing if path.exists()))
        links = [(path.suffix[1:], path) for path in existing[:2] if path.exists()]
        address = _address(runs_dir, existing[0])
        return _Listed(date, stem.name, address, "unknown", _day(date), (str(error),), _links(runs_dir, links))
    blocks = f"{known.blocks} of {known.blocks_planned} blocks" if known.blocks_planned else ""
    meta = " · ".join(x for x in (_day(known.date), known.study, blocks, ", ".join(known.loads)) if x)
    message = known.message or ("" if known.status == "whole" else "The last cell of its notebook says why.")
    lines = [*known.headlines, *([message] if message else [])]
    if known.treatments:
        lines.append("Treatments: " + ", ".join(known.treatments))
    places = [("report", known.html), ("notebook", known.notebook), ("records", known.data)]
    links = [(label, base / place) for label, place in places if place]
    page = base / known.html
    address = _address(runs_dir, page) if page.is_file() else ""
    return _Listed(known.date, known.title, address, known.status, meta, tuple(lines), _links(runs_dir, links))


def _links(runs_dir: Path, places: Iterable[tuple[str, Path]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, _address(runs_dir, path)) for label, path in places)


def _address(runs_dir: Path, path: Path) -> str:
    """Where the file lies as seen from the index; empty where it is not there."""
    if not path.exists():
        return ""
    # "./" keeps a name with a colon from being read as a scheme.
    return "./" + quote(relative(path, runs_dir)) + ("/" if path.is_dir() else "")


def _without_report(runs_dir: Path, studies_dir: Path | None, stems: list[Path]) -> list[tuple[str, str]]:
    """Recorded studies that no report speaks of: their names and addresses."""
    if studies_dir is None:
        return []
    spoken = set()
    for stem in stems:
        try:
            known = read_entry(stem.with_name(stem.name + ".json"))
        except UsageError:
            continue
        if known.data:
            spoken.add((stem.parent / known.data).resolve())
    return [
        (f"{folder.parent.name}/{folder.name}", _address(runs_dir, folder))
        for folder in reversed(recorded_in(studies_dir))
        if folder.resolve() not in spoken
    ]


def _day(iso: str) -> str:
    try:
        return datetime.datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso
