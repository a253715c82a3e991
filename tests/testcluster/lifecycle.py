"""Up: a control plane and two nodes in namespaces of their own on one machine.

The control plane lives in a network namespace with the bridge that connects everything; each node has a network, mount,
pid, uts and ipc namespace. The machine itself sees one link, a few routes and the cgroups. So no port and no firewall
rule of the machine matters, and `down` (see `teardown`) finds everything by namespace even when it was never written
down.
"""

import contextlib
import shutil
import time
from pathlib import Path

from testcluster import cgroups, host, pki
from testcluster.clients import kubectl
from testcluster.controlplane import start_control_plane
from testcluster.images import built_images
from testcluster.meshimages import MeshImages, prepare
from testcluster.networks import make_networks
from testcluster.nodes import start_node, wait_imported, wait_node_ready, write_node
from testcluster.procs import call, wait_for
from testcluster.settings import DNS_ADDRESS, HERE, NODES, CannotRunError, ClusterError, Layout, Options
from testcluster.state import State
from testcluster.teardown import Say, down, remove_killed, shielded

# Folders that every node expects at the same path: mount points for the nodes, missing on a machine without containers.
_MOUNT_POINTS = (
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
    "/etc/cni/net.d",
    "/opt/cni/bin",
)
# Settings of the whole machine that the kubelet changes when it starts.
_KUBELET_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# All containers of root count as one user, and some dozens of sidecars use up the usual 128.
_INOTIFY = ("fs/inotify/max_user_instances", 1024)


def up(layout: Layout, say: Say, *, owner: str = "hand", options: Options | None = None) -> None:
    """Start the cluster: both nodes Ready, images imported, DNS answering. A failed start leaves nothing.

    CannotRunError: this machine cannot. ClusterError: one runs, nothing is built, or a part did not start (with its
    log).
    """
    state = State.load(layout)
    if state is not None:
        if state.alive():
            raise ClusterError(f"a cluster is up already (started by {state.owner}); 'cluster down' ends it")
        say("removing what an interrupted cluster left")
        down(layout, say)
    if problems := host.reasons(layout):
        raise CannotRunError("; ".join(problems))
    remove_killed(layout, say)
    images = built_images(layout)
    foreign = prepare(layout, images, say)
    started = time.monotonic()
    try:
        _start(layout, say, State.new(layout, owner), options or Options(), images, foreign)
    except BaseException:  # Ctrl-C too, because half a cluster is useless
        with shielded():
            down(layout, say)
        raise
    say(f"up in {time.monotonic() - started:.1f} s: KUBECONFIG={layout.kubeconfig}")


def _start(
    layout: Layout, say: Say, state: State, options: Options, images: dict[str, str], foreign: MeshImages
) -> None:
    foreign.save(layout)
    shutil.rmtree(layout.logs / "cluster", ignore_errors=True)
    (layout.logs / "cluster").mkdir(parents=True)
    machine = host.inspect(layout)
    state.options = {"pin": options.pin, "housekeeping": options.housekeeping, "plugins": str(machine.plugins)}
    _prepare_machine(state)
    make_networks(layout)
    pki.make(layout.run / "pki")
    pki.write_private(layout.kubeconfig, (layout.run / "pki" / "admin.kubeconfig").read_bytes())
    started = time.monotonic()
    start_control_plane(layout, state)
    say(f"API server ready after {time.monotonic() - started:.1f} s")
    for node in NODES:
        write_node(layout, node, machine, options, images)
        start_node(layout, state, node)
    for node in NODES:
        wait_node_ready(layout, node)
    say(f"{len(NODES)} nodes Ready after {time.monotonic() - started:.1f} s")
    _apply_base(layout, images)
    for node in NODES:
        wait_imported(layout, node)
    if foreign.references:
        say(f"{len(foreign.references)} mesh images on every node after {time.monotonic() - started:.1f} s")
    kubectl(layout, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
    state.ready = True
    state.save()


def _prepare_machine(state: State) -> None:
    name, wanted = _INOTIFY
    for key in (*_KUBELET_SYSCTLS, name):
        with contextlib.suppress(OSError):
            state.sysctls[key] = Path("/proc/sys", key).read_text().strip()
    state.save()
    if int(state.sysctls.get(name, wanted)) < wanted:
        Path("/proc/sys", name).write_text(str(wanted))
    for point in _MOUNT_POINTS:
        for folder in [*reversed(Path(point).parents), Path(point)]:
            if not folder.exists():
                state.folders.append(str(folder))
                state.save()
                folder.mkdir()
    if not Path("/proc/sys/net/bridge").exists() and host.which("modprobe"):
        with contextlib.suppress(ClusterError):  # built into the kernel, or absent and not required
            call(["modprobe", "br_netfilter"])
    for node in NODES:
        state.handed_down += cgroups.make(node)
        state.save()


def _apply_base(layout: Layout, images: dict[str, str]) -> None:
    text = (HERE / "manifests" / "base.yaml").read_text()
    text = text.replace("@DNS_ADDRESS@", DNS_ADDRESS).replace("@COREDNS_IMAGE@", images["coredns"])
    kubectl(layout, "apply", "-f", "-", stdin=text)

    def account() -> bool:
        with contextlib.suppress(ClusterError):
            kubectl(layout, "-n", "default", "get", "serviceaccount", "default", timeout_s=10)
            return True
        return False

    # Pods that are created before it exists are refused.
    wait_for("the default service account", account, 30)
