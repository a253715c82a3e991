"""More generators under the same load: an effect is found if they change the measurement, else equivalence."""

from dataclasses import replace

import polars as pl
import pytest
from building import built
from refused import refused
from unit.report.synth import Shape, study_data

from meshtrial.design.load import FixedRate
from meshtrial.errors import UsageError
from meshtrial.inference import instrument
from meshtrial.report import tables

ONE = FixedRate(2000, 10, 6.0, generators=1, generators_vary=True)
FOUR = replace(ONE, generators=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return study_data(tmp_path_factory.mktemp("study"), Shape(loads=(FOUR, ONE), noise=0.01))


def test_loads_that_differ_in_their_generators_alone_are_a_sweep(data):
    (found,) = instrument.sweeps(data)
    assert [load.generators for load in found.loads] == [1, 4]
    assert [load.label for load in found.loads] == ["2000rps-10c-1g", "2000rps-10c-4g"]


def test_a_treatment_that_is_what_is_measured_is_equivalent(data):
    (found,) = instrument.sweeps(data)
    (row,) = instrument.contrasts(data, found, "node-proxy", "latency_p50_s")
    assert (row.treatment, row.baseline) == ("4 generators", "1 generator")
    assert row.verdict == "equivalent"
    assert row.n_blocks == 10
    shown = tables.generators(data).text
    assert "4 generators against 1 generator" in shown
    assert "equivalent" in shown


def test_generators_that_were_the_limit_are_found(data):
    slowed = (pl.col("load") == ONE.label) & pl.col("response").str.starts_with("latency_p50")
    table = data.table.with_columns(pl.when(slowed).then(pl.col("value") * 1.5).otherwise("value").alias("value"))
    (found,) = instrument.sweeps(data)
    (row,) = instrument.contrasts(replace(data, table=table), found, "none", "latency_p50_s")
    assert row.verdict == "faster"
    assert row.ratio == pytest.approx(1 / 1.5, rel=0.03)


def test_one_number_of_generators_says_so(tmp_path):
    data = study_data(tmp_path, Shape())
    assert instrument.sweeps(data) == ()
    assert "one number of load generators" in tables.generators(data).text


def test_a_list_of_generators_is_a_load_each():
    study = built("mesh_comparison", generators="1,2,4", rates="200")
    assert [load.label for load in study.loads] == ["200rps-10c-1g", "200rps-10c-2g", "200rps-10c-4g", "capacity-10c"]
    plain = built("mesh_comparison", generators=2, rates="200")
    assert [load.label for load in plain.loads] == ["200rps-10c", "capacity-10c"]
    with refused(UsageError):
        built("mesh_comparison", generators="1,x")
    with refused(UsageError, names=["replicas", 2, "generators", 2]):
        built("mesh_comparison", generators="3", replicas=2)
