"""System calls a request, where strace may trace."""

from __future__ import annotations

import io

import pytest

from meshtrial import cli
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import MissingToolError
from meshtrial.run.probe import probe, require_strace


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
