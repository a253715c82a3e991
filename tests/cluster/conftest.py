"""A real two-node Kubernetes for the tests beside this file. See README.md for what it is and how to use it by hand.

Fixtures: ``cluster``, ``kubeconfig``, ``images``, ``namespace``, ``kwok``, ``istio``, ``ground``, ``require_mesh``. The
cluster is started once for a session and brought down at its end, also after Ctrl-C or SIGTERM. Where it cannot run,
tests skip with the reason; in CI (CI=true) they fail instead.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # tests are imported by path (importlib mode), so nothing else finds the package

from clusterenv import Cluster, ClusterError, Istio, Kwok, Layout, host, snapshot  # noqa: E402
from clusterenv.build import build  # noqa: E402
from clusterenv.settings import Options, in_ci  # noqa: E402
from clusterenv.state import State  # noqa: E402
from clusterenv.teardown import raise_interrupt  # noqa: E402
from owncluster import OWN_KUBECONFIG, own_kubeconfig  # noqa: E402

if TYPE_CHECKING:
    from ground import Ground

# A test's own time; starting and ending the cluster is not counted.
TEST_TIMEOUT_S = 600
LAST = "test_down_leaves_nothing"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--all``: what is marked ``wide`` too, which shows once more, in full, what other tests show already."""
    parser.addoption("--all", action="store_true", help="run the tests marked wide as well")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is here, leave out what is wide, and order it: a mesh's tests together, the cluster's end last."""
    ours = [item for item in items if HERE in item.path.parents]
    wide = [] if config.getoption("--all") else [item for item in ours if item.get_closest_marker("wide")]
    if wide:
        config.hook.pytest_deselected(items=wide)
        items[:] = [item for item in items if item not in wide]
        ours = [item for item in ours if item not in wide]
    for item in ours:
        item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))
    # Where they stand now, in an order by mesh: pytest's own puts tests of one feature of two meshes together.
    by_mesh = [(i, item) for i, item in enumerate(items) if item in ours and "standing" in _parameters(item)]
    for (i, _), (_, item) in zip(by_mesh, sorted(by_mesh, key=lambda p: _parameters(p[1])["standing"]), strict=True):
        items[i] = item
    last = [item for item in ours if item.name == LAST]
    if last:
        items[:] = [item for item in items if item not in last] + last


def _parameters(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


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


@pytest.fixture(scope="session")
def before_cluster() -> snapshot.Snapshot:
    """The machine before the session's cluster."""
    return snapshot.take()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield the running cluster; a module that ends or restarts it must leave it up.

    ``MESHTRIAL_CLUSTER_REUSE=1`` takes the one that was started by hand, and leaves it up.
    ``MESHTRIAL_CLUSTER_PIN=1`` gives each node's pods half of the CPUs.
    ``MESHTRIAL_CLUSTER_WAIT_S`` (1800) is how long another session of the same home is waited for.
    ``MESHTRIAL_MESH_IMAGES`` names a folder of images and charts of further meshes.
    """
    try:
        if own_kubeconfig():
            pytest.skip(f"{OWN_KUBECONFIG} is set, and this test is for the test cluster alone")
        layout = Layout.default()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:  # a build takes a quarter of an hour: that must be seen while it happens
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"cluster: {line}", file=sys.stderr, flush=True)

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
            if running is not None:  # its session is dead, for we have the lock
                handle.stop()
            request.getfixturevalue("before_cluster")
            # Ctrl-C twice ends pytest in the middle of its own report, and then no fixture is torn down any more.
            atexit.register(handle.stop)
            stack.callback(atexit.unregister, handle.stop)
            stack.callback(handle.stop)
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


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest) -> Ground:
    """Return the cluster of the conformance tests: the test cluster, or with ``MESHTRIAL_TEST_KUBECONFIG`` that one.

    ``MESHTRIAL_TEST_CLUSTER_FILE`` names the user's options for it, as ``cluster_file`` of a study does.
    """
    from ground import ground_on, own_ground  # the tests of the cluster itself do not need the library

    try:
        own = own_kubeconfig()
        return own_ground(own) if own else ground_on(request.getfixturevalue("cluster"))
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def require_mesh(ground: Ground) -> Callable[[str], None]:
    """Return what a test calls first: ``require_mesh("kuma")`` skips it by name where Kuma's images are not."""
    return ground.require


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
    """Yield 20 pretended nodes for 600 pretended pods; they are gone after the module."""
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
