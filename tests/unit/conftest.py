"""Small studies and records for several tests, and the number of examples per property."""

import gc
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from building import record, study, verdict_row
from commandline import SAMPLE
from hypothesis import HealthCheck, settings

from meshtrial.design.plan import Plan, make_plan
from meshtrial.inference import read_study
from meshtrial.records import listing, packed
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import StudyStore

sys.modules.setdefault("rfc3987_syntax", None)  # as `cli.main` does, before any test imports jsonschema
pytest.register_assert_rewrite("refused", "waiting")  # so that it prints what it compared

# The same examples every time, no deadline on a busy machine, no folder left behind. HYPOTHESIS_PROFILE=many, by hand:
# more examples, and different ones each time.
settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("many", settings.get_profile("same"), derandomize=False, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

gc.disable()  # modules and collected tests are no garbage


def pytest_collection_finish() -> None:
    """Collect garbage from now on, and only what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def make_row():
    return verdict_row


@pytest.fixture
def small_plan() -> Plan:
    return make_plan(study())


@pytest.fixture(scope="session")
def make_record():
    return record


@pytest.fixture(scope="session")
def make_study():
    return study


@pytest.fixture(scope="session")
def sample(tmp_path_factory) -> Callable[[str], StudyData]:
    """Return a function that unpacks and reads a sample by its name, once per session; tests must not change it."""
    root = tmp_path_factory.mktemp("samples")

    @cache
    def read(name: str) -> StudyData:
        return read_study(StudyStore.open(packed.unpack(listing.samples()[name], root)))

    return read


@pytest.fixture
def studies(tmp_path, monkeypatch) -> Path:
    """Return the folder of recorded studies, which is the test's own and does not exist yet."""
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    return tmp_path / "studies"


@pytest.fixture
def copied(tmp_path) -> Path:
    """Return a copy of the sample's folder that a test may change."""
    return shutil.copytree(SAMPLE, tmp_path / SAMPLE.parent.name / SAMPLE.name)


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Figures are made with words and numbers but not rendered, which costs most of the time."""
    monkeypatch.setattr("meshtrial.report.sheet.to_svg", lambda canvas, alt: "<svg></svg>")
