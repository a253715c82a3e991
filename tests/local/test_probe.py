"""System calls a request, where strace may trace."""

from __future__ import annotations

import io

import pytest

import meshtrial as mt
from meshtrial import cli
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.records.mechanism import FILE, READS, WRITES, read_mechanism
from meshtrial.run.probe import probe, require_strace
from meshtrial.run.trial import Trial


def allowed() -> bool:
    try:
        require_strace()
    except MissingToolError:
        return False
    return True


@pytest.mark.skipif(not allowed(), reason="strace is missing or may not trace")
def test_every_component_reads_and_writes_each_request():
    found = probe(Treatment.parse("sidecar"), Load(100, 2, 0.5, 0.0), "echo")
    assert [c.component for c in found.components] == ["app", "server sidecar", "client sidecar"]
    for component in found.components:
        # A sidecar writes twice a request, onwards and back; the app once.
        sent = sum(component.calls.get(name, 0) for name in ("write", "writev", "sendto", "sendmsg"))
        assert sent >= 0.9 * found.traced
        assert component.switches is not None
        assert component.switches > 0


@pytest.mark.skipif(not allowed(), reason="strace is missing or may not trace")
def test_the_command_prints_a_table_a_treatment():
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["probe", "none", "--duration", "0.3"], out, err) == 0, err.getvalue()
    assert "syscalls/request" in out.getvalue()


@pytest.mark.skipif(not allowed(), reason="strace is missing or may not trace")
def test_a_study_counts_after_its_runs_and_shows_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    given = {
        "treatments": "none,node-proxy",
        "rps": 100,
        "connections": 2,
        "duration_s": 0.5,
        "warmup_s": 0,
        "blocks": 2,
    }
    lines = []
    study = mt.run("ambient_vs_no_mesh", tell=lines.append, probe=True, **given)
    assert sum("system calls of" in line for line in lines) == 2
    found = read_mechanism(study.path)
    assert [one.treatment for one in found] == ["none", "node-proxy"]
    proxies = [c for one in found for c in one.components if c.role == "data plane"]
    assert len(proxies) == 2
    assert all(
        c.of(READS) + c.of(WRITES) > one.traced for one in found for c in one.components if c.role == "data plane"
    )
    assert "client node proxy" in mt.tables.mechanism(study).text
    # It is there: continuing the study counts nothing again.
    mt.run("ambient_vs_no_mesh", tell=lines.append, study_dir=str(study.path))
    assert sum("system calls of" in line for line in lines) == 2
    # A report measures nothing, also where this is missing.
    (study.path / FILE).unlink()
    Trial("ambient_vs_no_mesh", {"study_dir": str(study.path), "run_missing": False}).run(lines.append)
    assert not (study.path / FILE).exists()


def test_a_study_on_a_cluster_cannot_count_them():
    with pytest.raises(MeshtrialError, match="probe = True: strace watches processes of this machine"):
        Trial("ambient_vs_no_mesh", {"backend": "kubernetes", "probe": True})._probe_problems()
