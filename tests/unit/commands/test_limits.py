"""Limits of the machine in one line, before anything starts; what it refuses later, too."""

import errno
import resource

import pytest
from commandline import meshtrial
from refused import refused

from meshtrial.commands import limits, status
from meshtrial.errors import MissingToolError

GIB = 2**30
FILES = "this shell allows 32 open files a process and a study needs 128: `ulimit -n` raises it"
ADDRESSES = "this shell allows 1 GiB of addresses a process and a study needs 2: `ulimit -v unlimited` raises it"


@pytest.mark.parametrize(
    ("files", "addresses", "said"),
    [((32, 32), (-1, -1), FILES), ((1024, 1024), (GIB, GIB), ADDRESSES), ((32, 1024), (GIB, 4 * GIB), None)],
)
def test_a_limit_is_raised_where_it_may_be_and_said_where_not(monkeypatch, files, addresses, said):
    allowed = {resource.RLIMIT_NOFILE: files, resource.RLIMIT_AS: addresses}
    monkeypatch.setattr(resource, "getrlimit", allowed.get)

    def raise_to(kind: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > allowed[kind][1]:
            raise ValueError("current limit exceeds maximum limit")
        allowed[kind] = wanted

    monkeypatch.setattr(resource, "setrlimit", raise_to)
    if said is None:
        limits.require()
        assert [soft for soft, _ in allowed.values()] == [limits.FILES, limits.ADDRESSES]
    else:
        with refused(MissingToolError):
            limits.require()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device; mend that and give"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; mend that and give"),
        (MemoryError(), "there was not enough memory; free some, or use a larger machine"),
    ],
)
def test_what_the_machine_refuses_any_command_is_a_line(monkeypatch, error, said):
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(status, "run", refuse)
    code, _, err = meshtrial("status")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"meshtrial status: {said}")


def test_an_error_of_our_own_is_not_hidden(monkeypatch):
    monkeypatch.setattr(status, "run", lambda *_: open("/nowhere/at/all"))  # noqa: SIM115, PTH123
    with pytest.raises(FileNotFoundError):
        meshtrial("status")
