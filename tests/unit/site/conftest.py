"""The recorded sample, and a page with its verdicts as in its report."""

from pathlib import Path

import pytest

from meshtrial import paths
from meshtrial.inference import read_study
from meshtrial.records.dataset import StudyData
from meshtrial.records.packed import unpack
from meshtrial.records.store import StudyStore
from meshtrial.report import tables
from meshtrial.report.pages import Section, write_page

SAMPLES = paths.CHECKOUT / "data" / "sample"


@pytest.fixture(scope="session")
def data() -> StudyData:
    (folder,) = (path.parent for path in SAMPLES.glob("*/*/plan.json"))
    return read_study(StudyStore.open(folder))


@pytest.fixture(scope="session")
def other(tmp_path_factory) -> StudyData:
    packed = next(SAMPLES.glob("ambient_vs_no_mesh-*.zip"))
    return read_study(StudyStore.open(unpack(packed, tmp_path_factory.mktemp("unpacked"))))


@pytest.fixture
def report(tmp_path):
    def made(data: StudyData, name: str = "report") -> Path:
        path = tmp_path / "reports" / f"{name}.html"
        write_page(path, data.plan.study.title, [Section("Provenance", (tables.provenance(data).html,))])
        return path

    return made
