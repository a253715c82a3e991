"""System calls per request, if strace may trace."""

import pytest
from commandline import meshtrial

from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.records.mechanism import READS, WRITES, read_mechanism, write_mechanism
from meshtrial.run import probe as counting
from meshtrial.run.probe import probe, probe_study, require_strace
from meshtrial.run.trial import Trial


def allowed() -> bool:
    try:
        require_strace()
    except MissingToolError:
        return False
    return True


@pytest.mark.skipif(not allowed(), reason="strace is missing or may not trace")
def test_every_component_reads_and_writes_each_request():
    found = probe(Treatment.parse("sidecar"), FixedRate(100, 2, 0.5, 0.0), "echo")
    assert [c.component for c in found.components] == ["app", "server sidecar", "client sidecar"]
    for component in found.components:
        # A sidecar writes twice per request, forwards and back; the application once.
        sent = sum(component.calls.get(name, 0) for name in ("write", "writev", "sendto", "sendmsg"))
        assert sent >= 0.9 * found.traced
        assert component.switches is not None
        assert component.switches > 0


@pytest.mark.skipif(not allowed(), reason="strace is missing or may not trace")
def test_the_command_prints_a_table_a_treatment():
    code, out, err = meshtrial("probe", "none", "--duration", "0.3")
    assert code == 0, err
    assert "syscalls/request" in out


@pytest.mark.skipif(not allowed(), reason="strace is missing or may not trace")
def test_a_studys_treatments_are_counted_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "STAGE_S", 0.3)
    given = {"treatments": "none,node-proxy", "rps": 100, "connections": 2, "duration_s": 0.4, "probe": True}
    lines: list[str] = []
    found = probe_study(Trial("ambient_vs_no_mesh", given).plan, lines.append)
    assert [one.treatment for one in found] == ["none", "node-proxy"]
    assert len(lines) == 2
    proxies = [c for one in found for c in one.components if c.role == "data plane"]
    assert {c.component for c in proxies} == {"client node proxy", "server node proxy"}
    assert all(c.of(READS) + c.of(WRITES) > found[1].traced for c in proxies)
    write_mechanism(tmp_path, found)
    assert read_mechanism(tmp_path) == found


def test_a_study_on_a_cluster_cannot_count_them():
    with pytest.raises(MeshtrialError, match="probe = True: strace traces only processes of this machine"):
        Trial("ambient_vs_no_mesh", {"backend": "kubernetes", "probe": True}).probe_problems()
