"""The rows of the sidecar debate match its raw files: six runs at one rate are kept as a fixture."""

import csv
import re
import statistics
import tarfile

import polars as pl
import pytest
from refused import refused

import debate
import published
from meshtrial import MeshtrialError, paths

RAW = paths.CHECKOUT / "tests" / "fixtures" / "published" / "great-sidecar-debate-60rps.tar.xz"

SPECTRUM = re.compile(r"^ +(\d+\.\d{3}) +[01]\.\d{6} +(\d+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("debate")
    with tarfile.open(RAW) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def rows(checkout):
    return debate.rows(checkout)


def test_the_rows_in_the_repository_are_made_again_from_the_raw_files(checkout, tmp_path):
    out = tmp_path / "debate.csv"
    debate.main([str(checkout), "--out", str(out)])
    made = pl.read_csv(out, infer_schema=False)
    kept = pl.read_csv(published.FOLDER / published.DEBATE, infer_schema=False)
    assert made.columns == kept.columns
    assert made.height == 3 * 2 * 5
    same = [name for name in made.columns if name != "statistic"]  # which has the number of runs
    assert made.select(same).join(kept.select(same), on=same, how="anti", nulls_equal=True).is_empty()
    assert set(made["statistic"]) == {"one of 2 runs", "one of 2 runs; mean under load"}


@pytest.mark.parametrize("folder", debate.TREATMENTS)
def test_usage_is_the_mean_of_the_samples_under_load(checkout, rows, folder):
    with (checkout / "V1" / "Data" / folder / "60-1-metrics.csv").open() as file:
        samples = list(csv.DictReader(file))
    busy = [float(row["faces CPU"]) for row in samples]
    loaded = [row for row, cpu in zip(samples, busy, strict=True) if cpu > max(busy) / 2][1:-1]
    assert 25 <= len(loaded) <= 30  # of 300 s of load, with a sample every 10 s
    cpu = statistics.fmean(int(row["mesh CPU"]) for row in loaded) / 1e9
    memory = statistics.fmean(int(row["data-plane mem"]) for row in loaded) / 2**20
    found = values(rows, folder)
    assert found["mesh_cpu"] == pytest.approx(cpu, rel=5e-4)
    assert found["data_plane_memory"] == pytest.approx(memory, rel=5e-4)


@pytest.mark.parametrize("folder", debate.TREATMENTS)
def test_percentiles_are_of_the_requests_of_all_generators(checkout, rows, folder):
    logs = [log.read_text() for log in (checkout / "V1" / "Data" / folder).glob("60-1-wrk2-*.log")]
    assert len(logs) == 3
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = values(rows, folder)[name]
        at_most, below, total = 0, 0, 0
        for log in logs:
            spectrum = [(float(ms), int(count)) for ms, count in SPECTRUM.findall(log)]
            total += spectrum[-1][1]
            below += max((count for ms, count in spectrum if ms <= value), default=0)
            at_most += min((count for ms, count in spectrum if ms >= value), default=spectrum[-1][1])
        assert below <= share * total <= at_most


def values(rows, folder):
    return {row["response"]: float(row["value"]) for row in rows if row["place"] == f"{folder}/60-1-*"}


def test_a_folder_without_the_raw_files_is_refused(tmp_path):
    with refused(MeshtrialError, names=[tmp_path, "linkerd/RATE-RUN-metrics.csv"]):
        debate.rows(tmp_path)
    with pytest.raises(SystemExit, match="great-sidecar-debate"):
        debate.main([str(tmp_path), "--out", str(tmp_path / "debate.csv")])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "timestamp,mesh CPU\n2025-03-27 22:26:31,1\n"], ids=["empty", "columns"])
def test_a_damaged_table_and_a_run_without_a_log_are_refused(tmp_path, text):
    with tarfile.open(RAW) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "V1" / "Data" / "ambient"
    (folder / "60-2-metrics.csv").write_text(text)
    with refused(MeshtrialError, names=["60-2-metrics.csv"]):
        debate.rows(tmp_path)
    for log in folder.glob("60-2-wrk2-*.log"):
        log.unlink()
    with refused(MeshtrialError, names=["ambient/60-2-wrk2-*.log"]):
        debate.rows(tmp_path)
