"""Make reports of the recorded samples with the command that readers use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


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


def make_all(studies: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """The pages of several studies by the names given to them, as many at once as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        pages = workers.map(lambda name: make(studies[name], folder / name), studies)
        return dict(zip(studies, pages, strict=True))
