"""For any file content, a parser returns data or one clear sentence: the first mutants of every kind give no traceback.

`tests/mutants.py` defines mutants and makes as many as requested.
"""

import json
import shutil
from pathlib import Path

import pytest
from commandline import SAMPLE
from mutants import KINDS, Kind, mutant, nonsense, said_against, tried

from meshtrial.compare.formats import read_file
from meshtrial.inference import read_study
from meshtrial.load.recorded import Recorded
from meshtrial.records.store import StudyStore

FEW, MANY = 20, 100
DEEP = (b"", b"[" * 5000, b"9" * 5000)  # deeper than Python's parser allows, and more digits than Python reads
# One kind per reader: all forms of other tools share one.
OF_EACH_READER = {getattr(kind.parse, "func", kind.parse): name for name, kind in KINDS.items()}.values()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One fixture for all cases of the module."""
    return tmp_path_factory.mktemp("foreign")


@pytest.mark.parametrize("name", KINDS)
def test_a_mutated_input_gives_data_or_one_sentence(name: str, folder: Path) -> None:
    assert tried(name, KINDS[name].sound, folder) == ""
    count = max(FEW, round(MANY * KINDS[name].share))
    refused = [tried(name, mutant(name, number), folder) for number in range(count)]
    assert any(refused) or name in ("cAdvisor", "kubelet summary")


@pytest.mark.parametrize("name", OF_EACH_READER)
def test_what_is_empty_or_deeper_than_a_parser_goes_gives_data_or_one_sentence(name: str, folder: Path) -> None:
    for data in DEEP:
        tried(name, data, folder)


def test_a_parser_that_breaks_is_found(monkeypatch, folder) -> None:
    def breaks(path: Path) -> object:
        return json.loads(path.read_bytes())["Labels"].lower()

    monkeypatch.setitem(KINDS, "broken", Kind(b'{"Labels": "a", "Data": [1, 2]}', breaks, json.loads))
    number = next(n for n in range(MANY) if b"Labels" not in mutant("broken", n))
    with pytest.raises((KeyError, ValueError)):
        tried("broken", mutant("broken", number), folder)


def test_a_result_of_no_run_is_found() -> None:
    for values in ({"latency_p50_s": 2.0, "latency_p99_s": 1.0}, {"error_ratio": 1.5}, {"error_ratio": 0.5}):
        read = object.__new__(Recorded)
        for name, value in {"responses": values, "bounds": {}}.items():
            object.__setattr__(read, name, value)
        assert bool(nonsense(read)) == (values != {"error_ratio": 0.5})


@pytest.mark.parametrize("name", ["verdicts.json", "plan.json", "runs.parquet", "environment.json"])
def test_a_damaged_study_is_told_in_one_sentence(name: str, tmp_path: Path, monkeypatch) -> None:
    study = tmp_path / "study"
    shutil.copytree(SAMPLE, study, ignore=shutil.ignore_patterns("latency.parquet", "logs"))
    monkeypatch.setitem(KINDS, name, Kind((SAMPLE / name).read_bytes(), read_file))
    for number in range(FEW):
        (study / name).write_bytes(mutant(name, number))
        said_against(lambda: read_study(StudyStore.open(study)))
