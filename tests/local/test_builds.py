"""A debug build is recognised by its version string, recorded, and named first among a report's limits."""

from __future__ import annotations

import re

import pytest
from local.studies import recorded, study_of

from meshtrial import native, network, paths
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.records.builds import not_released
from meshtrial.report.checks import limits
from meshtrial.testbed.kubernetes.meshdata import read_mesh
from meshtrial.testbed.local.processes import Child
from meshtrial.testbed.local.sockets import free_ports, wait_listening


def test_a_debug_envoy_is_the_first_limit_of_its_report(tmp_path, monkeypatch):
    real, debug = native.find("envoy"), tmp_path / "envoy"
    debug.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {real} --version | sed s,/RELEASE/,/DEBUG/, || exec {real} "$@"\n'
    )
    debug.chmod(0o755)
    monkeypatch.setenv("MESHTRIAL_ENVOY", str(debug))
    given = {"treatments": "none,sidecar", "rps": 100, "connections": 4, "duration_s": 0.5, "warmup_s": 0.1}
    data = recorded(study_of("ambient_vs_no_mesh", {**given, "blocks": 2}))
    assert [run.reasons for run in data.runs if not run.valid] == []
    assert not_released(data.runs) == {("envoy", "DEBUG"): ["sidecar"]}
    assert limits(data).state == "problem"
    assert limits(data).details[0].startswith("envoy reports that it is not a release (DEBUG), in sidecar")


@pytest.mark.parametrize("mesh", ["consul", "istio", "kuma", "sidecar"])
def test_what_meshes_with_envoys_are_asked_a_real_one_answers(tmp_path, mesh):
    (probe,) = (one for one in read_mesh(paths.MANIFESTS / "meshes" / mesh).version_probes if one.of_build)
    address = "127.77.1.1"
    (port,) = free_ports(address)
    proxy = Proxy("plain", (address, port))
    child = Child(proxy.name, proxy.command(native.find("envoy"), tmp_path), tmp_path / "log")
    try:
        wait_listening(child, [proxy.admin])
        with network.ask(network.url(address, f"{port}/{probe.url.partition('/')[2]}"), 30) as answer:
            page = answer.read().decode()
    finally:
        child.stop()
    assert re.findall(probe.pattern, page) == ["RELEASE"]
