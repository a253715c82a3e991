"""``meshtrial site``: ``papermill_runs/index.html`` again; with a folder, a static web site of studies to publish."""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError, UsageError, writing
from meshtrial.records import machine, packed
from meshtrial.records.store import PLAN, StudyStore

if TYPE_CHECKING:
    from meshtrial.records.dataset import StudyData
    from meshtrial.site.published import Published


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "papermill_runs/index.html again; with OUT a static site of studies."
    command.add_argument("out", nargs="?", type=Path, metavar="OUT", help="folder of the site; pages in it stay")
    command.add_argument(
        "studies",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="recorded or packed studies; without any those that have a report here, and data/sample",
    )
    command.add_argument("--base-url", default="", metavar="URL", help="where it will be served; adds a feed (RSS)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.report import write_index

    if arguments.out is not None:
        return _publish(arguments.out.resolve(), arguments.studies, arguments.base_url, out)
    if arguments.base_url:
        raise UsageError("--base-url: is for a site; name its folder too, meshtrial site OUT --base-url URL")
    print(paths.display_path(write_index(paths.reports_root(), paths.studies_root())), file=out)
    return 0


def _publish(root: Path, chosen: list[Path], base: str, out: TextIO) -> int:
    from meshtrial.records.listing import samples
    from meshtrial.site.pages import FEED, checked_base, refuse_foreign, write_site_index
    from meshtrial.site.published import all_published

    base_url = checked_base(base) if base else ""
    refuse_foreign(root)
    for folder in chosen or [*sorted({records for _, records in _reports()}), *samples().values()]:
        try:
            published = _published(folder, root, out)
            print(f"{paths.display_path(root)}/{published.address}index.html", file=out, flush=True)
        except MeshtrialError as error:
            if chosen:
                raise
            print(f"left out: {paths.display_path(folder)}: {error}", file=out)
    studies, broken = all_published(root)
    with writing(root, UsageError):
        index = write_site_index(root, studies, broken, base_url)
    for _, reason in broken:
        print(f"listed without its verdict: {reason}", file=out)
    if not base_url and (root / FEED).is_file():
        print(f"{FEED} is as it was; --base-url URL writes it again", file=out)
    print(f"site    {paths.display_path(index)}, studies: {len(studies)}", file=out)
    return 0


def _published(folder: Path, root: Path, out: TextIO) -> Published:
    from meshtrial.inference import read_study
    from meshtrial.site.pages import REPORT, address, publish, says_the_same

    with tempfile.TemporaryDirectory(prefix="meshtrial-site-") as private:
        # A packed one is unpacked where it leaves nothing behind.
        data = read_study(StudyStore.open(folder.resolve(), Path(private) / "data" / "studies"))
        # The newest report here, or the one that was published before, of those that say the verdicts of the records.
        known = [*(page for page, records in _reports() if records == data.path), root / address(data) / REPORT]
        report = next((page for page in known if says_the_same(page, data)), None)
        report = report or _made(data, Path(private), out)
        for line in machine.told([*packed.files(data.path, tuple(packed.PARTS)), report]):
            print(f"{data.path.name}: {line}", file=out)
        return publish(data, report, root)


def _reports() -> Iterator[tuple[Path, Path]]:
    """Whole reports with the folders of their records, the newest report first."""
    from meshtrial.report import reports

    for one in reversed(reports(paths.reports_root())):
        if one.entry and one.entry.status == "whole" and one.records and (one.records / PLAN).is_file():
            yield one.file(".html"), one.records


def _made(data: StudyData, private: Path, out: TextIO) -> Path:
    """A report made of the records, by the study's notebook, which measures nothing for it."""
    from meshtrial.commands import gating
    from meshtrial.commands.run import run_notebook
    from meshtrial.inference.gate import read_rules
    from meshtrial.report.tables import recorded_at

    print(f"making the report of {data.path.name}, a minute or two ...", file=out, flush=True)
    place = Path(recorded_at(data))
    reports = private / "reports"
    # From where the records read the same on every machine: the report holds its parameters as they were given.
    with contextlib.chdir(data.path.parents[len(place.parts) - 1]):
        given = {"study_dir": str(place), "run_missing": False}
        run_notebook(data.plan.study.name, given, io.StringIO(), gating.Gate(read_rules([], [])), reports)
    (page,) = reports.glob(f"{data.plan.study.name}-*.html")
    return page
