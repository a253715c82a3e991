"""A study's page and what lies beside it: its report as it was published, its data, its records, its picture."""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from meshtrial import __version__
from meshtrial.errors import RecordError
from meshtrial.inference.export import export
from meshtrial.records.dataset import StudyData
from meshtrial.records.packed import PARTS, pack
from meshtrial.records.store import write_text
from meshtrial.report import figures, report_seal, tables
from meshtrial.report.markup import Cell, Column, Table, part, render
from meshtrial.site.head import Head
from meshtrial.site.picture import picture
from meshtrial.site.published import STUDIES, Published

PAGE, REPORT, CARD, RECORDS = "index.html", "report.html", "card.png", "records.zip"
_WHAT = {
    "verdicts.csv": "verdicts, one row per contrast, response and load",
    "verdicts.parquet": "the same as Parquet",
    "runs.csv": "responses, one row per run and response; excluded runs are marked",
    "runs.parquet": "the same as Parquet",
    "study.json": "verdicts and runs as one JSON document",
    RECORDS: "the records, without single requests and logs; meshtrial verify and report take it as it is",
}


def address(data: StudyData) -> str:
    """Where a study's page lies in every site: by its name, the start of its first run, and its plan's digest."""
    name, began = data.plan.study.name, data.began_unix_s
    if began is None:
        raise RecordError(f"{data.path}: holds no run yet; there is nothing to publish")
    try:
        stamp = datetime.datetime.fromtimestamp(began, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    except (OverflowError, ValueError, OSError):
        raise RecordError(f"{data.path}: its first run began at no time of any calendar ({began})") from None
    if not re.fullmatch(r"\w[\w.-]*", name, flags=re.ASCII):
        raise RecordError(f"{data.path}: a study called {name!r} cannot be a folder of a site")
    return f"{STUDIES}/{name}/{stamp}-{data.plan.sha256[:8]}/"


def says_the_same(report: Path, data: StudyData) -> bool:
    """Whether a report was made of this plan and of these verdicts."""
    seal = report_seal(report)
    return (seal.get("plan"), seal.get("verdicts")) == (data.plan.sha256, tables.verdicts_sha256(data))


def kept_report(data: StudyData, root: Path) -> Path | None:
    """The report that the site holds of this study already, where it says the same verdicts."""
    path = root / address(data) / REPORT
    return path if path.is_file() and says_the_same(path, data) else None


def publish(data: StudyData, report: Path, root: Path, base_url: str = "") -> Published:
    """Write a study's folder: page, report, data, records, picture; without ``base_url`` the page names no picture.

    The report is copied as it is; one that lies there and says other verdicts stays under another name.
    """
    published = Published.of(data, address(data))
    folder = root / published.address
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _place(report, folder)
        files = [*export(data, folder), pack(data.path, folder / RECORDS, tuple(PARTS))]
        (folder / CARD).write_bytes(picture(data))
        published.write(folder)
        write_text(folder / PAGE, _page(data, published, files, _earlier(folder), base_url))
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written ({error.strerror}); check rights and free space") from None
    return published


def _place(report: Path, folder: Path) -> None:
    """Copy the report; what was published before with other verdicts stays, named by their digest."""
    target = folder / REPORT
    if report == target:
        return
    if target.is_file():
        before = report_seal(target).get("verdicts", "")
        if before != report_seal(report).get("verdicts") and re.fullmatch(r"[0-9a-f]{64}", before):
            target.rename(folder / f"report-{before[:8]}.html")
    shutil.copyfile(report, target)


def _earlier(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("report-*.html"))


def _page(data: StudyData, published: Published, files: Sequence[Path], earlier: Sequence[str], base_url: str) -> str:
    asked = published.study
    head = Head(
        title=published.title,
        description=published.sentence,
        depth=published.address.count("/"),
        base_url=base_url,
        address=published.address,
        picture=published.address + CARD,
        picture_says=f"Ratios to {asked.baseline} with intervals and margins",
    )
    columns: list[Column[Path]] = [
        Column("file", lambda path: Cell(path.name, html=part("link", path.name, path.name))),
        Column("what it holds", lambda path: _WHAT[path.name], wide=True),
        Column("size", _size, numeric=True),
    ]
    return render(
        "site/study.html.j2",
        head=head,
        published=published,
        report=REPORT,
        report_size=_size(files[0].parent / REPORT),
        earlier=earlier,
        verdict=[tables.verdict_sentence(data).html, figures.forest(data).html, tables.verdict_table(data).html],
        files=Table.of("Data and records of this study", columns, files, show_caption=False, css="mt-files").to_html(),
        citation=tables.citation(data).html,
        records=RECORDS,
        version=__version__,
    )


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
