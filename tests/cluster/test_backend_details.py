"""The details apps on the cluster: the same service with and without TCP_NODELAY, as in the local study."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from clusterenv import Cluster
from clusterenv.ruby import webrick_details
from test_backend_support import bed_on, one_run

from meshtrial.design.study import Load

# As fast as answers come: at a rate with pauses between requests the delayed acknowledgements hide.
LOAD = Load(rps=0, connections=2, duration_s=3, warmup_s=1)


@pytest.mark.skipif(shutil.which("ruby") is None, reason="not run: ruby is not installed")
def test_the_image_has_what_its_recipe_installs():
    image = webrick_details()
    assert image is not None, "ruby is there, but not webrick, or not from Debian's packages"
    assert "/usr/local/share/meshtrial/details.rb" in image.files
    assert image.links["/usr/bin/ruby"].startswith("ruby")
    assert any(name.endswith("/lib/webrick.rb") for name in image.files)
    assert not any(name.startswith("/usr/share/doc/") for name in image.files)
    assert image.user == "65532:65532"


def test_there_is_no_image_without_ruby(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert webrick_details() is None
    without_webrick = tmp_path / "ruby"
    without_webrick.write_text("#!/bin/sh\nexit 1\n")
    without_webrick.chmod(0o755)
    assert webrick_details() is None


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
    # Linux acknowledges after 40 ms at the earliest what it delays; without that it is a fraction of it.
    assert p50["details"] > 0.030
    assert p50["details-nodelay"] < p50["details"] / 3
