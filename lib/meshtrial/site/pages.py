"""The pages of a site: the first one with verdicts as JSON and a feed, and one for each study.

Beside a study's page lie its report as it was published, its data and its records. The feed is RSS 2.0
(https://www.rssboard.org/rss-specification), a study an item. It holds no time of its making: the same studies give the
same bytes.
"""

import datetime
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from email.utils import format_datetime
from pathlib import Path

from markupsafe import Markup

from meshtrial import __version__, paths
from meshtrial.errors import RecordError, UsageError, writing
from meshtrial.inference.export import export
from meshtrial.records.dataset import StudyData
from meshtrial.records.packed import PARTS, pack
from meshtrial.records.store import PLAN, write_text
from meshtrial.report import figures, report_seal, tables
from meshtrial.report.markup import render, style_sheet
from meshtrial.report.summary import one_line
from meshtrial.site.published import SCHEMA, STUDIES, Published, as_json, described, write_summary

INDEX, VERDICTS, FEED = "index.html", "verdicts.json", "feed.xml"
REPORT, RECORDS = "report.html", "records.zip"  # beside a study's page, which is an index.html too
SCHEMAS = Path("docs", "schema")  # in the checkout and in every site, so that an address in use stays


def refuse_foreign(root: Path) -> None:
    """Refuse a folder that is no place for a site: the checkout, a study, one whose first page is not ours."""
    is_foreign = (root / INDEX).exists() and not (root / VERDICTS).is_file()
    if is_foreign or root.is_file() or root == paths.CHECKOUT or (root / PLAN).exists():
        raise UsageError(
            f"{root}: is a file, the checkout, a study or somebody else's web page; "
            "name the folder of the site first, then studies"
        )


def checked_base(url: str) -> str:
    """An address under which a site is served, with a slash at its end."""
    if not re.fullmatch(r"https?://[^\s?#/:\[\]]+(:\d+)?(/[^\s?#]*)?", url):
        raise UsageError(f"--base-url {url}: is no address of a site; give one like https://example.org/meshes/")
    return url if url.endswith("/") else url + "/"


def write_site_index(
    root: Path, studies: Sequence[Published], broken: Sequence[tuple[str, str]] = (), base_url: str = ""
) -> Path:
    """Write ``index.html``, ``verdicts.json`` with its schemas and, for a site whose address is known, ``feed.xml``.

    Studies come as `all_published` gives them, the newest first; pages that cannot be described are listed with their
    reason. The feed's links must be whole: ``base_url`` is of `checked_base`.
    """
    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(paths.CHECKOUT / SCHEMAS, root / SCHEMAS, dirs_exist_ok=True)
    write_text(root / VERDICTS, as_json({"schema": SCHEMA, "studies": [asdict(study) for study in studies]}))
    if base_url:
        # XML cannot hold every sign that a title can.
        feed = render("site/feed.xml.j2", studies=studies, base=base_url, date=format_datetime, line=one_line)
        write_text(root / FEED, feed)
    page = render(
        "site/index.html.j2",
        # Of those that settle as much, the newest stays first.
        studies=sorted(studies, key=lambda one: one.weight, reverse=True),
        broken=broken,
        has_feed=(root / FEED).is_file(),
        sheets=_sheets(),
        version=__version__,
    )
    write_text(root / INDEX, page)
    return root / INDEX


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
            sheets=_sheets(),
            version=__version__,
        )
        write_text(folder / INDEX, page)
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


def _sheets() -> list[Markup]:
    """Styles: those of the reports, and what only the site needs."""
    return [style_sheet(name) for name in ("objects.css", "page.css", "site/site.css")]
