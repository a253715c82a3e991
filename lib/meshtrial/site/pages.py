"""The pages of a site: a front page with verdicts as JSON and a feed, and one page per study.

The folder of a study's page also contains its published report, its data and its records. The feed is RSS 2.0
(https://www.rssboard.org/rss-specification), one item per study. It contains no build time, so the same studies give
the same bytes.
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
REPORT, RECORDS = "report.html", "records.tar.xz"  # in the folder of a study's page, which is an index.html, too
SCHEMAS = Path("docs", "schema")  # the same path in the checkout and in every site


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
        sheets=_sheets(),
        version=__version__,
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
            sheets=_sheets(),
            version=__version__,
        )
        write_text(folder / INDEX, page)
    return published


def _place(report: Path, target: Path) -> None:
    """Copy the report; keep an earlier one with different verdicts, named by their digest."""
    if report == target:
        return
    if target.is_file():
        earlier = report_seal(target).get("verdicts", "")
        if earlier != report_seal(report).get("verdicts") and re.fullmatch(r"[0-9a-f]{64}", earlier):
            target.rename(target.with_name(f"report-{earlier[:8]}.html"))
    shutil.copyfile(report, target)


def _sheets() -> list[Markup]:
    return [style_sheet(name) for name in ("objects.css", "page.css", "site/site.css")]
