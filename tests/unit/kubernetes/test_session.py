import os
import socket
import time
from collections.abc import Iterator

import pytest
from refused import refused
from unit.kubernetes.fakeapi import FakeApi
from waiting import wait_for

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import Applier, Owner
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.session import DURATION_S, NAME, Session, running_sessions

OWNER = Owner("mesh comparison", "abc123")
PATH = f"/apis/coordination.k8s.io/v1/namespaces/trial-probe/leases/{NAME}"


def session_of(api: FakeApi) -> Session:
    return Session(Applier(api, OWNER), KubernetesOptions(), "trial-probe", renew_s=0.02, retry_s=0.02)


@pytest.fixture
def held() -> Iterator[tuple[FakeApi, Session]]:
    api = FakeApi()
    session = session_of(api)
    session.hold()
    yield api, session
    session.release()


def test_a_session_that_lives_says_who_it_is(held: tuple[FakeApi, Session]):
    api, session = held
    where = f"on host {socket.gethostname()}, process {os.getpid()}, since 2027-01-15 08:00:00 UTC"
    assert running_sessions(api) == {"abc123": f"study mesh-comparison is running (owner abc123, {where})"}
    session.release()
    assert running_sessions(api) == {}


def test_it_is_renewed_by_the_servers_clock(held: tuple[FakeApi, Session]):
    api, _ = held
    api.now += 10_000  # no local clock is used
    wait_for(lambda: list(running_sessions(api)) == ["abc123"])


def test_a_session_that_crashed_is_over_a_minute_later():
    api = FakeApi()
    session_of(api).renew()  # its process has ended, so nobody renews or releases the Lease
    api.now += DURATION_S
    assert list(running_sessions(api)) == ["abc123"]
    api.now += 1
    assert running_sessions(api) == {}


def test_an_api_server_that_is_away_for_a_while_ends_nothing(held: tuple[FakeApi, Session]):
    api, _ = held
    api.silent = True
    unanswered = api.unanswered
    wait_for(lambda: api.unanswered >= unanswered + 2)  # it tried again and again
    api.now += 500
    api.silent = False
    wait_for(lambda: list(running_sessions(api)) == ["abc123"])


def test_a_lease_that_somebody_deleted_is_made_again(held: tuple[FakeApi, Session]):
    api, _ = held
    del api.objects[PATH]
    wait_for(lambda: PATH in api.objects)


def test_one_that_is_renewed_no_more_is_not_made_again(held: tuple[FakeApi, Session]):
    api, session = held
    session.stop()
    assert list(running_sessions(api)) == ["abc123"]  # for a minute yet
    del api.objects[PATH]
    time.sleep(0.1)  # five renewals
    assert PATH not in api.objects


def test_whether_a_session_lives_is_never_guessed():
    api = FakeApi()
    api.silent = True
    with refused(TestbedError, names=["/apis/coordination.k8s.io/v1/leases", "https://fake"]):
        running_sessions(api)
