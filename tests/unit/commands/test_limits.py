"""Limits of the machine are reported in one line before anything starts, and so are later refusals."""

import errno
import resource

import pytest
from commandline import meshtrial
from refused import refused

from meshtrial.commands import limits, status
from meshtrial.errors import MissingToolError

GIB = 2**30


@pytest.mark.parametrize(
    ("files", "addresses", "refusal"),
    [
        ((32, 32), (-1, -1), [32, 128]),
        ((1024, 1024), (GIB, GIB), [1, 2]),
        ((32, 1024), (GIB, 4 * GIB), []),
    ],
)
def test_a_limit_is_raised_where_it_may_be_and_said_where_not(monkeypatch, files, addresses, refusal):
    allowed = {resource.RLIMIT_NOFILE: files, resource.RLIMIT_AS: addresses}
    monkeypatch.setattr(resource, "getrlimit", allowed.get)

    def raise_to(kind: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > allowed[kind][1]:
            raise ValueError("current limit exceeds maximum limit")
        allowed[kind] = wanted

    monkeypatch.setattr(resource, "setrlimit", raise_to)
    if not refusal:
        limits.require()
        assert [soft for soft, _ in allowed.values()] == [limits.FILES, limits.ADDRESSES]
    else:
        with refused(MissingToolError, names=refusal):
            limits.require()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device; "),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; "),
        (MemoryError(), "not enough memory; "),
    ],
)
def test_what_the_machine_refuses_any_command_is_a_line(monkeypatch, error, reason):
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(status, "run", refuse)
    code, _, err = meshtrial("status")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"meshtrial status: {reason}")


def test_an_error_of_our_own_is_not_hidden(monkeypatch):
    monkeypatch.setattr(status, "run", lambda *_: open("/nowhere/at/all"))  # noqa: SIM115, PTH123
    with pytest.raises(FileNotFoundError):
        meshtrial("status")
