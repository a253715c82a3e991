"""strace's table, and the message if strace is missing."""

from refused import refused

from meshtrial.errors import MissingToolError
from meshtrial.records.mechanism import ComponentCalls, Mechanism
from meshtrial.run import probe

TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000600           3       200        10 futex
 40.00    0.000400           4       100           write
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000           3       300        10 total
"""


def test_calls_are_read_by_name_with_and_without_errors(tmp_path):
    path = tmp_path / "app.strace"
    path.write_text(TABLE)
    assert probe.read_counts(path) == {"futex": 200, "write": 100}


def test_counts_are_shown_a_request():
    calls = ComponentCalls("app", "app", {"futex": 200, "write": 100}, 250)
    lines = probe.lines(Mechanism("none", "100rps-4c", 100, 50, (calls,)), most=1)
    # 300 calls in 100 traced requests; 250 switches in 50 untraced ones.
    assert lines[-1].split() == ["app", "3.00", "5.00", "futex", "2.00"]


def test_a_missing_strace_is_one_line_with_what_to_do(monkeypatch):
    monkeypatch.setattr(probe.shutil, "which", lambda _: None)
    with refused(MissingToolError):
        probe.require_strace()


def test_a_strace_that_may_not_trace_is_said(monkeypatch, tmp_path):
    fake = tmp_path / "strace"
    fake.write_text("#!/bin/sh\necho 'strace: ptrace(PTRACE_TRACEME): Operation not permitted' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(probe.shutil, "which", lambda _: str(fake))
    with refused(MissingToolError):
        probe.require_strace()
