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
from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.records import machine, packed
from meshtrial.records.store import PLAN, StudyStore

if TYPE_CHECKING:
    from meshtrial.records.dataset import StudyData
    from meshtrial.site.published import Published


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "papermill_runs/index.html again; with OUT a static site of studies and documentation."
    command.add_argument("out", nargs="?", type=Path, metavar="OUT", help="folder of the site; pages in it stay")
    command.add_argument(
        "studies",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="recorded or packed studies; without any those that have a report here, and data/sample",
    )
    command.add_argument(
        "--base-url", default="", metavar="URL", help="where it will be served: the feed and previews need it"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.report import write_index

    if arguments.out is not None:
        return _publish(arguments.out.resolve(), arguments.studies, arguments.base_url, out)
    if arguments.base_url:
        raise UsageError("--base-url: is for a site; name its folder too, meshtrial site OUT --base-url URL")
    print(paths.shown(write_index(paths.reports_root(), paths.studies_root())), file=out)
    return 0


def _publish(root: Path, chosen: list[Path], base: str, out: TextIO) -> int:
    from meshtrial.records.listing import samples
    from meshtrial.site.documents import write_documents
    from meshtrial.site.index import FEED, checked_base, refuse_foreign, write_feed, write_site_index
    from meshtrial.site.published import all_published

    base_url = checked_base(base) if base else ""
    refuse_foreign(root)
    folders = chosen or [*sorted({folder for _, folder in _reports()}), *samples().values()]
    for folder in folders:
        with _left_out_unless(bool(chosen), folder, out):
            published = _published(folder, root, base_url, out)
            print(f"{paths.shown(root)}/{published.address}index.html", file=out, flush=True)
    studies, broken = all_published(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        documents = write_documents(paths.CHECKOUT, root, base_url)
        index = write_site_index(root, studies, broken, base_url)
        if base_url:
            write_feed(root, studies, base_url)
    except OSError as error:
        raise UsageError(f"{root}: cannot be written ({error.strerror}); check rights and free space") from None
    for _, reason in broken:
        print(f"listed without its verdict: {reason}", file=out)
    if not base_url:
        feed = f"{FEED} is as it was" if (root / FEED).is_file() else "no feed"
        print(f"{feed}, no pictures in previews: these need whole addresses, --base-url https://...", file=out)
    counted = "1 study" if len(studies) == 1 else f"{len(studies)} studies"
    print(f"{counted}, {len(documents)} pages of documentation", file=out)
    print(f"site    {paths.shown(index)}", file=out)
    return 0


def _published(folder: Path, root: Path, base_url: str, out: TextIO) -> Published:
    from meshtrial.inference import read_study
    from meshtrial.site.study import kept_report, publish

    with tempfile.TemporaryDirectory(prefix="meshtrial-site-") as private:
        # A packed one is unpacked where it leaves nothing behind.
        data = read_study(StudyStore.open(folder.resolve(), Path(private) / "data" / "studies"))
        report = _report(data) or kept_report(data, root) or _made(data, Path(private), out)
        for line in machine.told([*packed.files(data.path, tuple(packed.PARTS)), report]):
            print(f"{data.path.name}: {line}", file=out)
        return publish(data, report, root, base_url)


@contextlib.contextmanager
def _left_out_unless(chosen: bool, folder: Path, out: TextIO) -> Iterator[None]:
    """What nobody asked for by name and cannot be published is left out, with its reason."""
    try:
        yield
    except MeshtrialError as error:
        if chosen:
            raise
        print(f"left out: {paths.shown(folder)}: {error}", file=out)


def _reports() -> list[tuple[Path, Path]]:
    """Whole reports with the folders of their records, the newest report first."""
    from meshtrial.report import reports

    whole = (one for one in reversed(reports(paths.reports_root())) if one.entry and one.entry.status == "whole")
    placed = [(one.file(".html"), one.records) for one in whole if one.records and (one.records / PLAN).is_file()]
    return [(page, records) for page, records in placed if page.is_file()]


def _report(data: StudyData) -> Path | None:
    """The newest report here that says the verdicts which the records have."""
    from meshtrial.site.study import says_the_same

    mine = (page for page, folder in _reports() if folder == data.path)
    return next((page for page in mine if says_the_same(page, data)), None)


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
