"""The details apps on the cluster: the same service with and without TCP_NODELAY, as in the local study."""

import json
from pathlib import Path

import pytest
from test_backend_support import bed_on, one_run
from testcluster import Cluster

from meshtrial.design.load import ClosedLoop

# A closed loop: pauses between requests would hide the delayed acknowledgements.
LOAD = ClosedLoop(connections=2, duration_s=3, warmup_s=1)


def test_nodelay_is_a_treatment_of_the_app(cluster: Cluster, tmp_path: Path):
    if "webrick-details" not in cluster.images:
        pytest.skip("not run: ruby with webrick is not installed where the images are built")
    p50 = {}
    with bed_on(cluster, namespace="details") as bed:
        for app in ("details", "details-nodelay"):
            folder = tmp_path / app
            folder.mkdir()
            run = one_run(bed, "none", folder, LOAD, app)
            assert run.failed == []
            (output,) = run.outputs
            result = json.loads(output.json_path.read_text())
            assert set(result["RetCodes"]) == {"200"}
            p50[app] = next(p["Value"] for p in result["DurationHistogram"]["Percentiles"] if p["Percentile"] == 50)
    # Linux delays an acknowledgement by at least 40 ms; without that a request takes a fraction of it.
    assert p50["details"] > 0.030
    assert p50["details-nodelay"] < p50["details"] / 3
