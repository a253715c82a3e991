"""The fixtures of the test cluster: ``cluster``, ``kubeconfig``, ``images``, ``namespace``, ``kwok`` and ``istio``.

A conftest.py takes them with :func:`use`. The cluster is started once for a session, by the first test that asks for
it, and brought down at the session's end, also after Ctrl-C or SIGTERM; what is left on the machine then is an error.
Where it cannot run, tests skip with the reason; in CI (CI=true) they fail instead.
"""

import atexit
import contextlib
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import pytest

from testcluster import host, snapshot
from testcluster.build import build
from testcluster.handle import Cluster
from testcluster.istio import Istio
from testcluster.kwok import Kwok
from testcluster.settings import ClusterError, Layout, Options, in_ci
from testcluster.state import State
from testcluster.teardown import raise_interrupt, remove_killed

# A test's own time limit, without starting and ending the cluster.
TEST_TIMEOUT_S = 600


def use(config: pytest.Config) -> None:
    """Offer the fixtures to a session, once, whoever asks: call it in ``pytest_configure`` of a conftest.py."""
    if not config.pluginmanager.has_plugin(__name__):
        config.pluginmanager.register(sys.modules[__name__], __name__)


def claim(items: Iterable[pytest.Item]) -> None:
    """Mark tests that use the cluster, and give each its own time limit."""
    for item in items:
        item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))


def _cannot_run(reason: str) -> None:
    if in_ci():
        pytest.fail(f"CI must run the test cluster, but: {reason}", pytrace=False)
    pytest.skip(f"no test cluster here: {reason}")


def _take_turn(layout: Layout, lock: TextIO, wait_s: float) -> None:
    """Let one session at a time use a home; its lock goes with the process, however that ends."""
    deadline = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            pytest.fail(f"another session has used the cluster in {layout.home} for {wait_s:g} s", pytrace=False)
        time.sleep(1)


def end(cluster: Cluster, before: snapshot.Snapshot) -> None:
    """Bring it down and check the machine with independent code: in every session, whatever was selected."""
    try:
        cluster.stop()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    left = [f"{kind} {line}" for kind, lines in before.added(snapshot.take()).items() for line in lines]
    if cluster.layout.run.exists():
        left.append(f"folder {cluster.layout.run}")
    if left:
        pytest.fail(f"the session left on this machine: {'; '.join(left)}", pytrace=False)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield the running cluster; a module that ends or restarts it must leave it up.

    ``MESHTRIAL_CLUSTER_REUSE=1`` takes the one that was started by hand, and leaves it up.
    ``MESHTRIAL_CLUSTER_PIN=1`` gives each node's pods half of the CPUs.
    ``MESHTRIAL_CLUSTER_WAIT_S`` (1800) is how long another session of the same home is waited for.
    ``MESHTRIAL_MESH_IMAGES`` names a folder of images and charts of further meshes.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:  # a build takes a quarter of an hour, so its progress must be visible
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"cluster: {line}", file=sys.stderr, flush=True)

    try:
        layout = Layout.default()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    with contextlib.ExitStack() as stack:
        previous = signal.signal(signal.SIGTERM, raise_interrupt)
        stack.callback(signal.signal, signal.SIGTERM, previous)
        try:
            if in_ci() and os.geteuid() == 0:
                host.install_packages(say)
            reuse = os.environ.get("MESHTRIAL_CLUSTER_REUSE") == "1"
            if not reuse and (problems := host.reasons(layout)):
                _cannot_run("; ".join(problems))
            build(layout, say)
            lock = stack.enter_context((layout.home / "session.lock").open("w"))
            _take_turn(layout, lock, float(os.environ.get("MESHTRIAL_CLUSTER_WAIT_S", "1800")))
            running = State.load(layout)
            handle = Cluster(layout, say)
            if running is not None and running.alive() and running.owner == "hand":
                if not reuse:
                    _cannot_run("one was started by hand; end it ('cluster down') or set MESHTRIAL_CLUSTER_REUSE=1")
                yield handle
                return
            if running is not None:  # its session is dead, because this one has the lock
                handle.stop()
            remove_killed(layout, say)
            before = snapshot.take()
            # A second Ctrl-C ends pytest in its own report, and no fixture is torn down any more.
            atexit.register(handle.stop)
            stack.callback(atexit.unregister, handle.stop)
            stack.callback(end, handle, before)
            handle.start(options=Options(pin=os.environ.get("MESHTRIAL_CLUSTER_PIN") == "1"))
        except ClusterError as error:
            pytest.fail(str(error), pytrace=False)
        yield handle


@pytest.fixture(scope="session")
def kubeconfig(cluster: Cluster) -> Path:
    """Path of the administrator's kubeconfig."""
    return cluster.kubeconfig


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> Mapping[str, str]:
    """References of the images that every node has: ``images["fortio"]``."""
    return cluster.images


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Yield a new namespace; it is deleted after the test, without waiting for its end."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        cluster.start_api_server()  # a test may have left it dead
        cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def kwok(cluster: Cluster) -> Iterator[Kwok]:
    """Yield 20 simulated nodes for 600 simulated pods; they are removed after the module."""
    with cluster.kwok(nodes=20) as fake:
        yield fake


@pytest.fixture(scope="module")
def istio(cluster: Cluster) -> Iterator[Istio]:
    """Yield an installed Istio; it is uninstalled after the module."""
    mesh = cluster.istio()
    try:
        mesh.install()
        yield mesh
    finally:
        mesh.uninstall()
