"""The values on which every analysis within blocks is based: included runs, in the order of the blocks."""

import numpy as np
import pytest
from unit.inference.recorded import study_of

from meshtrial.inference.values import LoadBlocks

P50, CPU = "latency_p50_s", "path_cpu_cores"


@pytest.fixture
def runs(small_plan):
    """Six blocks: the second is not included, the third has no CPU of the proxy."""

    def responses(run):
        found = {P50: float(run.repetition), CPU: 10.0 * run.repetition}
        return {P50: found[P50]} if (run.repetition, run.treatment) == (3, "node-proxy") else found

    data = study_of(small_plan, responses, lambda run: run.repetition != 2)
    return LoadBlocks.of(data.table, small_plan.study.loads[0].label)


def test_values_are_in_the_order_of_the_blocks_and_nan_where_there_is_none(runs):
    assert runs.blocks == (1, 3, 4, 5, 6)
    found = runs.values(["node-proxy", "none"], CPU)
    assert list(found) == ["node-proxy", "none"]
    np.testing.assert_array_equal(found["node-proxy"], [10, np.nan, 40, 50, 60])
    np.testing.assert_array_equal(found["none"], [10, 30, 40, 50, 60])
    assert np.isnan(runs.values(["none"], CPU, "bound")["none"]).all()
    asked = LoadBlocks(runs.runs, (4, 2))
    np.testing.assert_array_equal(asked.values(["none"], P50)["none"], [4, np.nan])


def test_complete_blocks_have_each_response_of_each_treatment(runs):
    assert runs.complete(["node-proxy", "none"], P50).blocks == (1, 3, 4, 5, 6)
    assert runs.complete(["node-proxy", "none"], P50, CPU).blocks == (1, 4, 5, 6)
    assert runs.complete(["none"], CPU).blocks == (1, 3, 4, 5, 6)
    assert runs.complete(["none"], "latency_p99_s").blocks == ()
    assert runs.complete([], P50).blocks == runs.blocks  # every treatment is excluded
