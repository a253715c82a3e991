"""The index over all reports: what was asked, when, what came out, and where the files are.

Each run leaves a small JSON file beside its HTML. The index believes nothing else: a report whose file is
missing or broken is listed with that reason, never left out.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from meshtrial import __version__
from meshtrial.errors import UsageError
from meshtrial.report.markup import escape, style_sheet
from meshtrial.report.sidecar import Sidecar, read_sidecar, relative, utc_text, write_sidecar

__all__ = ["Sidecar", "read_sidecar", "write_index", "write_sidecar"]
_MARKS = {"whole": ("●", "mt-same"), "failed": ("✕", "mt-stopped"), "interrupted": ("◇", "mt-open")}
_UNKNOWN = ("?", "mt-open")


def write_index(runs_dir: Path, studies_dir: Path | None = None) -> Path:
    """Write ``index.html`` over every report of a folder, newest first.

    Parameters
    ----------
    runs_dir : Path
        Where executed notebooks, reports and sidecars lie.
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
    entries = sorted((_entry(runs_dir, stem) for stem in stems), key=lambda entry: entry[0], reverse=True)
    orphans = _without_report(runs_dir, studies_dir, stems)
    page = _page([text for _, text in entries], orphans)
    path = runs_dir / "index.html"
    temporary = path.with_name("index.html.tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)
    return path


def _entry(runs_dir: Path, stem: Path) -> tuple[str, str]:
    """One report: what it is sorted by, and its HTML."""
    base = stem.parent
    try:
        known = read_sidecar(stem.with_name(stem.name + ".json"))
    except UsageError as error:
        existing = [stem.with_name(stem.name + suffix) for suffix in (".html", ".ipynb", ".json")]
        newest = max(path.stat().st_mtime for path in existing if path.exists())
        date = utc_text(newest)
        links = [(path.suffix[1:], path) for path in existing[:2] if path.exists()]
        title = _title(runs_dir, existing[0], stem.name)
        return date, _item(title, "unknown", _day(date), [str(error)], _links(runs_dir, links))
    page = base / known.html
    title = _title(runs_dir, page, known.title)
    blocks = f"{known.blocks} of {known.blocks_planned} blocks" if known.blocks_planned else ""
    meta = " · ".join(x for x in (_day(known.date), known.study, blocks, ", ".join(known.loads)) if x)
    message = known.message or ("" if known.status == "whole" else "The last cell of its notebook says why.")
    lines = [*known.headlines, *([message] if message else [])]
    if known.treatments:
        lines.append("Treatments: " + ", ".join(known.treatments))
    places = [("report", known.html), ("notebook", known.notebook), ("records", known.data)]
    links = [(label, base / place) for label, place in places if place]
    return known.date, _item(title, known.status, meta, lines, _links(runs_dir, links))


def _title(runs_dir: Path, page: Path, text: str) -> str:
    return f"<h2>{_link(_address(runs_dir, page), text) if page.is_file() else escape(text)}</h2>"


def _item(title: str, status: str, meta: str, lines: Iterable[str], links: str) -> str:
    glyph, tone = _MARKS.get(status, _UNKNOWN)
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f'<li>{title}<p class="meta"><span class="status {tone}">{glyph} {escape(status)}</span> · {escape(meta)}</p>'
        f'{paragraphs}<p class="links">{links}</p></li>'
    )


def _links(runs_dir: Path, places: Iterable[tuple[str, Path]]) -> str:
    found = []
    for label, path in places:
        if path.exists():
            address = _address(runs_dir, path) + ("/" if path.is_dir() else "")
            found.append(_link(address, label))
        else:
            found.append(f'<span class="mt-quiet">{escape(label)}: not there</span>')
    return " ".join(found)


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def _address(runs_dir: Path, path: Path) -> str:
    # "./" keeps a name with a colon from being read as a scheme.
    return "./" + quote(relative(path, runs_dir))


def _without_report(runs_dir: Path, studies_dir: Path | None, stems: list[Path]) -> list[str]:
    """Recorded studies that no report speaks of."""
    if studies_dir is None or not studies_dir.is_dir():
        return []
    spoken = set()
    for stem in stems:
        try:
            known = read_sidecar(stem.with_name(stem.name + ".json"))
        except UsageError:
            continue
        if known.data:
            spoken.add((stem.parent / known.data).resolve())
    plans = sorted(studies_dir.glob("*/*/plan.json"), reverse=True)
    return [
        _link(_address(runs_dir, plan.parent) + "/", f"{plan.parent.parent.name}/{plan.parent.name}")
        for plan in plans
        if plan.parent.resolve() not in spoken
    ]


def _page(entries: list[str], orphans: list[str]) -> str:
    body = (
        f'<ul class="reports">{"".join(entries)}</ul>'
        if entries
        else "<p>No report yet. Run one: <code>make study</code></p>"
    )
    if orphans:
        rows = "".join(f"<li>{link}</li>" for link in orphans)
        body += (
            f"<h2>Records without a report</h2><p>Make one with <code>meshtrial report DIR</code>.</p><ul>{rows}</ul>"
        )
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>meshtrial reports</title><style>{style_sheet('objects.css')}</style>"
        f"<style>{style_sheet('page.css')}</style></head><body>"
        '<a class="skip" href="#report">Skip to the reports</a>'
        '<header class="bar"><span class="brand">meshtrial</span></header>'
        f'<div class="page"><main id="report"><h1>Reports</h1>{body}</main></div>'
        f'<footer class="foot"><p>Written by meshtrial {__version__}.</p></footer></body></html>\n'
    )


def _day(iso: str) -> str:
    try:
        return datetime.datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso
