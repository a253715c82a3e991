"""``meshtrial site``: rebuild ``papermill_runs/index.html``; with a folder, build a static web site of studies."""

import argparse
import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.commands import gating
from meshtrial.commands.run import run_notebook
from meshtrial.errors import MeshtrialError, UsageError, writing
from meshtrial.inference import read_study
from meshtrial.inference.gate import Rules
from meshtrial.records import machine, packed
from meshtrial.records.dataset import StudyData
from meshtrial.records.listing import samples
from meshtrial.records.store import PLAN, StudyStore
from meshtrial.report import reports, site, write_index
from meshtrial.report.tables import recorded_at


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    command.description = "Without OUT, rebuild papermill_runs/index.html. With OUT, build a static web site."
    option("out", nargs="?", type=Path, metavar="OUT", help="folder of the site; its existing pages stay")
    option(
        "studies",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="recorded or packed studies (default: all with a report here, and data/sample)",
    )
    option("--base-url", default="", metavar="URL", help="address of the site; adds an RSS feed")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    if arguments.out is not None:
        return _publish(arguments.out.resolve(), arguments.studies, arguments.base_url, out)
    if arguments.base_url:
        raise UsageError("--base-url: needs the folder of the site: meshtrial site OUT --base-url URL")
    print(paths.display_path(write_index(paths.reports_root(), paths.studies_root())), file=out)
    return 0


def _publish(root: Path, chosen: list[Path], base: str, out: TextIO) -> int:
    base_url = site.checked_base(base) if base else ""
    site.refuse_foreign(root)
    for folder in chosen or [*sorted({records for _, records in _reports()}), *samples().values()]:
        try:
            published = _published(folder, root, out)
            print(f"{paths.display_path(root)}/{published.address}index.html", file=out, flush=True)
        except MeshtrialError as error:
            if chosen:
                raise
            print(f"left out: {paths.display_path(folder)}: {error}", file=out)
    studies, broken = site.all_published(root)
    with writing(root, UsageError):
        index = site.write_site_index(root, studies, broken, base_url)
    for _, reason in broken:
        print(f"listed without a verdict: {reason}", file=out)
    if not base_url and (root / site.FEED).is_file():
        print(f"{site.FEED} was not updated; --base-url URL updates it", file=out)
    print(f"site    {paths.display_path(index)}, studies: {len(studies)}", file=out)
    return 0


def _published(folder: Path, root: Path, out: TextIO) -> site.Published:
    with tempfile.TemporaryDirectory(prefix="meshtrial-site-") as private:
        # A packed study is unpacked into the temporary folder.
        data = read_study(StudyStore.open(folder.resolve(), Path(private) / "data" / "studies"))
        # Take the newest report here, else the one already published, whose verdicts match the records.
        pages = [
            *(page for page, records in _reports() if records == data.path),
            root / site.address(data) / site.REPORT,
        ]
        report = next((page for page in pages if site.matches_records(page, data)), None)
        report = report or _make_report(data, Path(private), out)
        for line in machine.machine_names([*packed.files(data.path, tuple(packed.PARTS)), report]):
            print(f"{data.path.name}: {line}", file=out)
        return site.publish(data, report, root)


def _reports() -> Iterator[tuple[Path, Path]]:
    """Yield complete reports with the folders of their records, the newest report first."""
    for report in reversed(reports(paths.reports_root())):
        if report.entry and report.entry.status == "whole" and report.records and (report.records / PLAN).is_file():
            yield report.file(".html"), report.records


def _make_report(data: StudyData, private: Path, out: TextIO) -> Path:
    """Make a report from the records with the study's notebook, which measures nothing here."""
    print(f"making the report of {data.path.name}; this takes one or two minutes", file=out, flush=True)
    folder = Path(recorded_at(data))
    # The report shows its parameters, so the folder is given relative to a place that every machine has.
    with contextlib.chdir(data.path.parents[len(folder.parts) - 1]):
        given = {"study_dir": str(folder), "measure": False}
        run_notebook(data.plan.study.name, given, io.StringIO(), gating.Gate(Rules()), private / "reports")
    (page,) = (private / "reports").glob(f"{data.plan.study.name}-*.html")
    return page
