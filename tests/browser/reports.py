"""Make reports of the recorded samples with the command that readers use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from meshtrial import paths
from meshtrial.records.packed import SUFFIX

SAMPLE = paths.CHECKOUT / "data" / "sample"


def samples() -> list[Path]:
    """Return every study of the checkout: folders and packed files."""
    return sorted([*(plan.parent for plan in SAMPLE.glob("*/*/plan.json")), *SAMPLE.glob(f"*{SUFFIX}")])


def make(study: Path, folder: Path, **environment: str) -> Path:
    """Make a report of a study, a folder or packed, by ``meshtrial report``, and return the page.

    The folder, made here, gets records and report; records outside of it are not touched.
    """
    records, reports = folder / "studies", folder / "reports"
    records.mkdir(parents=True)
    if study.is_dir():
        study = Path(shutil.copytree(study, records / study.parent.name / study.name))
    own: Mapping[str, str] = {"MESHTRIAL_DATA": str(records), "MESHTRIAL_REPORTS": str(reports)}
    done = subprocess.run(
        [sys.executable, "-m", "meshtrial", "report", str(study)],
        env={**os.environ, **own, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode not in (0, 3):  # 3: some recorded runs failed a check
        raise AssertionError(f"meshtrial report {study}: {done.stderr[-2000:]}")
    (page,) = reports.glob("*-*.html")
    return page


def make_all(studies: Sequence[Path], folder: Path) -> dict[str, Path]:
    """Return the pages of several studies by name, made in parallel on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        pages = workers.map(lambda study: make(study, folder / study.stem), studies)
        return {study.stem: page for study, page in zip(studies, pages, strict=True)}
