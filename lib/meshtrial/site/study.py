"""A study's page and what lies beside it: its report as it was published, its data and its records."""

from __future__ import annotations

import datetime
import re
import shutil
from pathlib import Path

from meshtrial import __version__
from meshtrial.errors import RecordError
from meshtrial.inference.export import export
from meshtrial.records.dataset import StudyData
from meshtrial.records.packed import PARTS, pack
from meshtrial.records.store import write_text
from meshtrial.report import figures, report_seal, tables
from meshtrial.report.markup import render
from meshtrial.site.index import sheets
from meshtrial.site.published import STUDIES, Published, described, write_summary

PAGE, REPORT, RECORDS = "index.html", "report.html", "records.zip"


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
    """Whether there is a report that was made of this plan and of these verdicts."""
    seal = report_seal(report) if report.is_file() else {}
    return (seal.get("plan"), seal.get("verdicts")) == (data.plan.sha256, tables.verdicts_sha256(data))


def publish(data: StudyData, report: Path, root: Path) -> Published:
    """Write a study's folder: page, report, data and records.

    The report is copied as it is; one that lies there and says other verdicts stays under another name.
    """
    published = described(data, address(data))
    folder = root / published.address
    try:
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
            sheets=sheets(),
            version=__version__,
        )
        write_text(folder / PAGE, page)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written ({error.strerror}); check rights and free space") from None
    return published


def _place(report: Path, target: Path) -> None:
    """Copy the report; what was published before with other verdicts stays, named by their digest."""
    if report == target:
        return
    if target.is_file():
        before = report_seal(target).get("verdicts", "")
        if before != report_seal(report).get("verdicts") and re.fullmatch(r"[0-9a-f]{64}", before):
            target.rename(target.with_name(f"report-{before[:8]}.html"))
    shutil.copyfile(report, target)
