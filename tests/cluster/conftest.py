"""Studies on a real Kubernetes: the test cluster of tests/testcluster, or one of the user's own (``owncluster``).

Fixtures: those of ``testcluster.plugin``, ``ground``, ``require_mesh`` and ``bed``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testcluster import ClusterError, plugin

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # tests are imported by path (importlib mode), so their shared modules need this entry

from owncluster import OWN_KUBECONFIG, own_kubeconfig  # noqa: E402

from meshtrial.run.quiet import PATIENCE  # noqa: E402

if TYPE_CHECKING:
    from ground import Ground
    from testcluster import Cluster

    from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--all``: include tests marked ``wide``, which repeat in full what other tests cover."""
    parser.addoption("--all", action="store_true", help="run the tests marked wide as well")


def pytest_configure(config: pytest.Config) -> None:
    plugin.use(config)
    # A shell lets background processes ignore Ctrl-C, and interrupted studies would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark cluster tests, deselect wide ones, skip those unfit for the user's own cluster, and order them by mesh."""
    ours = [item for item in items if HERE in item.path.parents]
    wide = (
        [] if config.getoption("--all", default=False) else [item for item in ours if item.get_closest_marker("wide")]
    )
    if wide:
        config.hook.pytest_deselected(items=wide)
        items[:] = [item for item in items if item not in wide]
        ours = [item for item in ours if item not in wide]
    plugin.claim(ours)
    try:
        own = own_kubeconfig()
    except ClusterError as error:
        raise pytest.UsageError(str(error)) from None
    for item in ours if own else ():
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(f"{OWN_KUBECONFIG} is set, and this test is for the test cluster alone"))
    # Keep this order by mesh: pytest's own puts tests of one feature of two meshes together.
    by_mesh = [(i, item) for i, item in enumerate(items) if item in ours and "standing" in _parameters(item)]
    for (i, _), (_, item) in zip(by_mesh, sorted(by_mesh, key=lambda p: _parameters(p[1])["standing"]), strict=True):
        items[i] = item


def _parameters(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(autouse=True, scope="module")
def no_wait_for_quiet() -> Iterator[None]:
    """Studies begin at once: other tests run beside these, and no test asks for a quiet machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PATIENCE, "0")
        yield


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest) -> Ground:
    """Return the cluster of the conformance tests: the test cluster, or with ``MESHTRIAL_TEST_KUBECONFIG`` that one.

    ``MESHTRIAL_TEST_CLUSTER_FILE`` names the user's options for it, as ``cluster_file`` of a study does.
    """
    from ground import ground_on, own_ground  # slow to import, and not every session needs it

    try:
        own = own_kubeconfig()
        return own_ground(own) if own else ground_on(request.getfixturevalue("cluster"))
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def require_mesh(ground: Ground) -> Callable[[str], None]:
    """Return what a test calls first: ``require_mesh("kuma")`` skips it by name where Kuma's images are not."""
    return ground.require


@pytest.fixture(scope="module")
def bed(cluster: Cluster) -> Iterator[KubernetesTestbed]:
    """One session for all runs of a file; a mesh stays installed between those that use it."""
    from test_backend_support import bed_on, owned_namespaces  # slow to import, too

    with bed_on(cluster, mesh_reinstall="once") as made:
        yield made
    assert owned_namespaces(cluster) == []
