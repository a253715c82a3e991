"""Up and down: a control plane and two nodes in namespaces of their own on one machine, and nothing left of them.

The control plane lives in a network namespace with the bridge that connects everything; each node has a network, mount,
pid, uts and ipc namespace. The machine itself sees one link, a few routes and the cgroups. So no port and no firewall
rule of the machine matters, and `down` finds everything by namespace even when it was never written down.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from clusterenv import cgroups, host, pki, procs
from clusterenv.images import archives, built_images
from clusterenv.procs import Proc, call, wait_for
from clusterenv.settings import (
    API_ADDRESS,
    API_PORT,
    CGROUP_PREFIX,
    CLUSTER_DOMAIN,
    CONTROL_PLANE,
    DNS_ADDRESS,
    HERE,
    HOST_ADDRESS,
    HOST_LINK,
    NODE_NETWORK,
    NODES,
    POD_NETWORK,
    SERVICE_NETWORK,
    CannotRunError,
    ClusterError,
    Layout,
    node_address,
    node_pods,
)
from clusterenv.state import State

Say = Callable[[str], None]

_ETCD = "http://127.0.0.1:2379"
# Without these no pod starts; the other images follow while the kubelets already register.
_FIRST_IMAGES = ("pause", "coredns")
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
# What the kubelet sets on the whole machine when it starts.
_KUBELET_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# All containers of root count as one user: the usual 128 is used up by some dozens of sidecars.
_INOTIFY = ("fs/inotify/max_user_instances", 1024)


@dataclass(frozen=True)
class Options:
    """What can be chosen when a cluster starts.

    Attributes
    ----------
    pin : bool
        Half of the machine's CPUs for each node's pods. Calms measurements on a quiet machine only.
    housekeeping : str
        How often the kubelet samples CPU use. Its own default is 10s, too coarse for load windows of seconds.
    """

    pin: bool = False
    housekeeping: str = "1s"


# --- up ---------------------------------------------------------------------------------------------------------------


def up(layout: Layout, say: Say, *, owner: str = "hand", options: Options | None = None) -> None:
    """Start the cluster: both nodes Ready, images imported, DNS answering. A failed start leaves nothing.

    Raises
    ------
    CannotRunError
        This machine cannot run it.
    ClusterError
        One is up already, nothing is built, or a part did not come up; the message names its log.
    """
    state = State.load(layout)
    if state is not None:
        if state.alive():
            raise ClusterError(f"a cluster is up already (started by {state.owner}); 'cluster down' ends it")
        say("removing what an interrupted cluster left")
        down(layout, say)
    if problems := host.reasons(layout):
        raise CannotRunError("; ".join(problems))
    images = built_images(layout)
    started = time.monotonic()
    try:
        _start(layout, say, State.new(layout, owner), options or Options(), images)
    except BaseException:  # Ctrl-C as well: half a cluster is of no use to anybody
        with shielded():
            down(layout, say)
        raise
    say(f"up in {time.monotonic() - started:.1f} s: KUBECONFIG={layout.kubeconfig}")


def _start(layout: Layout, say: Say, state: State, options: Options, images: dict[str, str]) -> None:
    shutil.rmtree(layout.logs / "cluster", ignore_errors=True)
    (layout.logs / "cluster").mkdir(parents=True)
    machine = host.inspect(layout)
    state.options = {"pin": options.pin, "housekeeping": options.housekeeping, "plugins": str(machine.plugins)}
    _prepare_machine(state)
    _make_networks(layout)
    pki.make(layout.run / "pki")
    pki.write_private(layout.kubeconfig, (layout.run / "pki" / "admin.kubeconfig").read_bytes())
    started = time.monotonic()
    start_daemon(layout, state, "etcd", _etcd(layout))
    start_api_server(layout, state)
    say(f"API server ready after {time.monotonic() - started:.1f} s")
    start_daemon(layout, state, "kube-controller-manager", _controller_manager(layout))
    start_daemon(layout, state, "kube-scheduler", _scheduler(layout))
    for node in NODES:
        _write_node(layout, node, machine, options, images)
        start_node(layout, state, node)
    for node in NODES:
        wait_node_ready(layout, node)
    say(f"{len(NODES)} nodes Ready after {time.monotonic() - started:.1f} s")
    _apply_base(layout, images)
    for node in NODES:
        wait_imported(layout, node)
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
        with contextlib.suppress(ClusterError):  # built into the kernel, or absent: the nodes get along without
            call(["modprobe", "br_netfilter"])
    for node in NODES:
        state.handed_down += cgroups.make(node)
        state.save()


def _in(layout: Layout, namespace: str, *argv: str) -> None:
    call(["nsenter", f"--net={layout.netns(namespace)}", "--", *argv])


def _make_networks(layout: Layout) -> None:
    (layout.run / "netns").mkdir()
    for namespace in (CONTROL_PLANE, *NODES):
        file = layout.netns(namespace)
        file.touch()
        # Held by a mount of our own and not by `ip netns`, which would leave a mount on /run/netns behind.
        call(["unshare", f"--net={file}", "--", "true"])
        _in(layout, namespace, "ip", "link", "set", "lo", "up")
    prefix = NODE_NETWORK.prefixlen
    _in(layout, CONTROL_PLANE, "ip", "link", "add", "br0", "type", "bridge")
    _in(layout, CONTROL_PLANE, "ip", "addr", "add", f"{API_ADDRESS}/{prefix}", "dev", "br0")
    _in(layout, CONTROL_PLANE, "ip", "link", "set", "br0", "up")
    plane = str(layout.netns(CONTROL_PLANE))
    call(["ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", "host", "netns", plane])
    _in(layout, CONTROL_PLANE, "ip", "link", "set", "host", "master", "br0", "up")
    call(["ip", "addr", "add", f"{HOST_ADDRESS}/{prefix}", "dev", HOST_LINK])
    call(["ip", "link", "set", HOST_LINK, "up"])
    for node in NODES:
        address = node_address(node)
        peer = ["peer", "name", "eth0", "netns", str(layout.netns(node))]
        _in(layout, CONTROL_PLANE, "ip", "link", "add", node, "type", "veth", *peer)
        _in(layout, CONTROL_PLANE, "ip", "link", "set", node, "master", "br0", "up")
        _in(layout, node, "ip", "addr", "add", f"{address}/{prefix}", "dev", "eth0")
        _in(layout, node, "ip", "link", "set", "eth0", "up")
        # The bridge's namespace knows no way out: what pods send to the world ends there.
        _in(layout, node, "ip", "route", "add", "default", "via", API_ADDRESS)
    for node in NODES:
        to_pods = ("ip", "route", "add", str(node_pods(node)), "via", node_address(node))
        call([*to_pods, "dev", HOST_LINK])
        for namespace in (CONTROL_PLANE, *NODES):
            if namespace != node:
                _in(layout, namespace, *to_pods)


def start_daemon(layout: Layout, state: State, name: str, command: Sequence[str | Path]) -> None:
    """Start a part of the control plane in its namespace and write it down."""
    log = layout.logs / "cluster" / f"{name}.log"
    state.procs[name] = procs.spawn(name, command, log, netns=layout.netns(CONTROL_PLANE))
    state.save()


def _etcd(layout: Layout) -> list[str | Path]:
    peer = "http://127.0.0.1:2380"
    return [
        layout.program("etcd"),
        "--name=etcd",
        f"--data-dir={layout.run / 'etcd'}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=etcd={peer}",
        "--unsafe-no-fsync",  # the data is thrown away with the cluster
        "--log-level=warn",
    ]


def _api_server(layout: Layout) -> list[str | Path]:
    keys = layout.run / "pki"
    return [
        layout.program("kube-apiserver"),
        f"--etcd-servers={_ETCD}",
        f"--bind-address={API_ADDRESS}",
        f"--advertise-address={API_ADDRESS}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={keys / 'ca.crt'}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"--service-account-key-file={keys / 'service-account.pub'}",
        f"--service-account-signing-key-file={keys / 'service-account.key'}",
        f"--kubelet-client-certificate={keys / 'apiserver-kubelet.crt'}",
        f"--kubelet-client-key={keys / 'apiserver-kubelet.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys / 'front-proxy.crt'}",
        f"--proxy-client-key-file={keys / 'front-proxy.key'}",
        # No kube-proxy runs beside the API server: webhooks are called at their pods' addresses.
        "--enable-aggregator-routing=true",
        "--profiling=false",
    ]


def _component(layout: Layout, name: str) -> list[str | Path]:
    keys = layout.run / "pki"
    config = keys / f"{name}.kubeconfig"
    return [
        layout.program(name),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={keys / f'{name}.crt'}",
        f"--tls-private-key-file={keys / f'{name}.key'}",
        "--leader-elect=false",
        # The defaults make 600 pods take minutes.
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--profiling=false",
    ]


def _controller_manager(layout: Layout) -> list[str | Path]:
    keys = layout.run / "pki"
    return [
        *_component(layout, "kube-controller-manager"),
        f"--service-account-private-key-file={keys / 'service-account.key'}",
        f"--root-ca-file={keys / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--allocate-node-cidrs=false",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
    ]


def _scheduler(layout: Layout) -> list[str | Path]:
    return _component(layout, "kube-scheduler")


# --- API server -------------------------------------------------------------------------------------------------------


def start_api_server(layout: Layout, state: State) -> None:
    """Start the API server and wait until it is ready."""
    start_daemon(layout, state, "kube-apiserver", _api_server(layout))

    def ready() -> bool:
        for name in ("etcd", "kube-apiserver"):
            if not state.procs[name].alive():
                log = layout.logs / "cluster" / f"{name}.log"
                raise ClusterError(f"{name} ended: {procs.last_line(log)} ({log})")
        with contextlib.suppress(ClusterError):
            kubectl(layout, "get", "--raw", "/readyz", timeout_s=5)
            return True
        return False

    wait_for(f"API server ready ({layout.logs / 'cluster' / 'kube-apiserver.log'})", ready, 120)


def kill_api_server(state: State) -> None:
    """Kill the API server with SIGKILL and wait until it is gone."""
    end(state.procs["kube-apiserver"])


def end(proc: Proc) -> None:
    if proc.alive():
        procs.kill([proc.pid])
    wait_for(f"end of {proc.name} ({proc.pid})", lambda: not proc.alive(), 10, every_s=0.02)


def environment(layout: Layout) -> dict[str, str]:
    """Environment for the cluster's clients: what they remember goes with the cluster, not into the user's home."""
    return os.environ | {
        "KUBECONFIG": str(layout.kubeconfig),
        "KUBECACHEDIR": str(layout.run / "kube-cache"),
        "HELM_CACHE_HOME": str(layout.run / "helm" / "cache"),
        "HELM_CONFIG_HOME": str(layout.run / "helm" / "config"),
        "HELM_DATA_HOME": str(layout.run / "helm" / "data"),
        "PATH": f"{layout.bin}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def kubectl(layout: Layout, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run kubectl as the administrator."""
    command: list[str | Path] = [layout.program("kubectl"), *arguments]
    return call(command, stdin=stdin, timeout_s=timeout_s, env=environment(layout))


# --- nodes ------------------------------------------------------------------------------------------------------------


def _reserved_cpus(node: str) -> str:
    """Tell the CPUs that a pinned node leaves to the others."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < len(NODES):
        raise ClusterError(f"cannot pin {len(NODES)} nodes to {len(cpus)} CPU")
    own = cpus[NODES.index(node) :: len(NODES)]
    return ",".join(str(cpu) for cpu in range(os.cpu_count() or 1) if cpu not in own)


def _write_node(layout: Layout, node: str, machine: host.Machine, options: Options, images: dict[str, str]) -> None:
    folder, keys = layout.run / node, layout.run / "pki"
    (folder / "cni-config").mkdir(parents=True)
    pki.write_private(folder / "kubelet.kubeconfig", (keys / f"{node}.kubeconfig").read_bytes())
    containerd = f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images["pause"]}"
  disable_apparmor = true
  # A root without CAP_SYS_RESOURCE may not lower the score of what it starts.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{machine.snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"""
    (folder / "containerd.toml").write_text(containerd)
    ipam = {
        "type": "host-local",
        "dataDir": "/var/lib/cni/networks",
        "ranges": [[{"subnet": str(node_pods(node))}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    network = {"cniVersion": "0.4.0", "name": "meshtrial", "plugins": [bridge, portmap]}
    (folder / "cni-config" / "10-bridge.conflist").write_text(json.dumps(network, indent=1))
    (folder / "resolv.conf").write_text("# nothing outside of the cluster can be reached\n")
    kubelet: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node_address(node),
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(keys / f"{node}-serving.crt"),
        "tlsPrivateKeyFile": str(keys / f"{node}-serving.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP_PREFIX}{node}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(folder / "resolv.conf"),
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": str(folder / "volume-plugins"),
        "registerNode": True,
        "maxPods": 110,
        "serializeImagePulls": False,
        # The disk is the whole machine's: how full it is says nothing about these pods.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi"},
    }
    if options.pin:
        kubelet["cpuManagerPolicy"] = "static"
        kubelet["cpuManagerPolicyOptions"] = {"strict-cpu-reservation": "true"}
        kubelet["reservedSystemCPUs"] = _reserved_cpus(node)
    (folder / "kubelet.json").write_text(json.dumps(kubelet, indent=1))
    proxy = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(keys / "kube-proxy.kubeconfig")},
        "hostnameOverride": node,
        "mode": "iptables",
        "clusterCIDR": str(POD_NETWORK),
        "bindAddress": node_address(node),
        "conntrack": {  # zeroes leave the machine's connection tracking as it is
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
    (folder / "kube-proxy.json").write_text(json.dumps(proxy, indent=1))


def start_node(layout: Layout, state: State, node: str) -> None:
    """Start a node's processes in namespaces of their own; not yet Ready when this returns."""
    folder = layout.run / node
    images = list(built_images(layout))
    first = archives(layout, [name for name in images if name in _FIRST_IMAGES])
    rest = archives(layout, [name for name in images if name not in _FIRST_IMAGES])
    init: list[str | Path] = [
        *("unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child", "--"),
        *(HERE / "node-init.sh", node, node_address(node), folder, layout.bin, layout.logs / "cluster"),
        *(state.options["plugins"], state.options["housekeeping"], *first, "--", *rest),
    ]
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    log = layout.logs / "cluster" / f"node-{node}.log"
    state.procs[node] = procs.spawn(node, init, log, netns=layout.netns(node), env=environment)
    state.save()


def kill_node(layout: Layout, state: State, node: str) -> None:
    """End a node at once, as a power cut would, with everything that ran on it."""
    end(state.procs[node])
    inode = procs.namespace_inode(layout.netns(node))
    procs.kill(procs.in_namespaces("net", [inode]))
    cgroups.remove([node])
    folder = layout.run / node
    for name in ("containerd", "kubelet", "cni-state", "cni-plugins", "pod-logs", "container-logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "imported").unlink(missing_ok=True)
    cgroups.make(node)


def heartbeat(layout: Layout, node: str) -> str:
    """When a node last said how it is; empty for one that never did."""
    path = "{.status.conditions[?(@.type=='Ready')].lastHeartbeatTime}"
    return kubectl(layout, "get", "node", node, "--ignore-not-found", "-o", f"jsonpath={path}", timeout_s=10)


def wait_node_ready(layout: Layout, node: str, *, since: str = "", timeout_s: float = 90) -> None:
    """Wait until a node says Ready, and says so newly if `since` is its last heartbeat."""
    log = layout.logs / "cluster" / f"kubelet-{node}.log"
    path = "{.status.conditions[?(@.type=='Ready')].status}"

    def ready() -> bool:
        with contextlib.suppress(ClusterError):
            now = kubectl(layout, "get", "node", node, "-o", f"jsonpath={path}", timeout_s=10)
            return now == "True" and heartbeat(layout, node) != since
        return False

    try:
        wait_for(f"node {node} Ready", ready, timeout_s, every_s=0.2)
    except ClusterError as error:
        raise ClusterError(f"{error}: {procs.last_line(log)} ({log})") from None


def wait_imported(layout: Layout, node: str) -> None:
    """Wait until a node has every image."""
    folder = layout.run / node
    wait_for(f"image import on {node}", (folder / "imported").exists, 180)
    failed = folder / "import-failed"
    if failed.exists():
        log = layout.logs / "cluster" / f"import-{node}.log"
        raise ClusterError(f"{node} cannot import {failed.read_text().split()[0]}: {procs.last_line(log)} ({log})")


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


# --- down -------------------------------------------------------------------------------------------------------------


@contextmanager
def shielded() -> Iterator[None]:
    """Let a clean-up end although somebody presses Ctrl-C again; the signal is delivered afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)

    def note(number: int, _frame: FrameType | None) -> None:
        pending.append(number)

    previous = {number: signal.signal(number, note) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(pending):
            os.kill(os.getpid(), late)


def _namespaces(layout: Layout) -> dict[str, Path]:
    return {name: layout.netns(name) for name in (CONTROL_PLANE, *NODES)}


def _mounts(layout: Layout) -> list[Path]:
    """List the mounts of the machine that are inside the home, deepest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        path = Path(line.split()[4].encode().decode("unicode_escape"))
        if path.is_relative_to(layout.home):
            found.append(path)
    return sorted(found, key=lambda path: -len(path.parts))


def _our_pids(layout: Layout, state: State | None) -> set[int]:
    """Find every process of the cluster: by namespace and cgroup, so nothing escapes by not being written down."""
    mounted = set(_mounts(layout))
    inodes = [procs.namespace_inode(path) for path in _namespaces(layout).values() if path in mounted]
    recorded = {proc.pid for proc in state.alive()} if state else set()
    return recorded | set(procs.in_namespaces("net", inodes)) | cgroups.members(NODES)


def down(layout: Layout, say: Say) -> None:
    """End the cluster and remove every trace of it.

    Raises
    ------
    ClusterError
        Something is left; the message says what.
    """
    state = State.load(layout)
    started = time.monotonic()
    if state is None and not leftovers(layout):
        say("no cluster is up")
        return
    # Killed and not asked: the data is thrown away, and an API server takes a minute to say good-bye to its watchers.
    # The first process of a pid namespace takes all others with it, and the last one its mounts.
    if state:
        procs.kill(proc.pid for proc in state.alive())
    with contextlib.suppress(ClusterError):  # what resists is named below
        wait_for("end of the processes", lambda: not _end_all(layout, state), 15, every_s=0.05)
    for path in _mounts(layout):
        with contextlib.suppress(ClusterError):
            call(["umount", path])
    if Path(f"/sys/class/net/{HOST_LINK}").exists():
        call(["ip", "link", "del", HOST_LINK])  # its routes go with it
    cgroups.remove(NODES)
    if state:
        cgroups.take_back(state.handed_down)
        for name, value in state.sysctls.items():
            path = Path("/proc/sys", name)
            if path.read_text().strip() != value:
                path.write_text(value)
        for folder in reversed(state.folders):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    problems = leftovers(layout)
    if not _mounts(layout):  # never through a mount
        shutil.rmtree(layout.run, ignore_errors=True)
        if layout.run.exists():
            problems.append(f"folder {layout.run}")
    if problems:
        raise ClusterError(f"left after down: {'; '.join(problems)}")
    say(f"down in {time.monotonic() - started:.1f} s, nothing left")


def _end_all(layout: Layout, state: State | None) -> set[int]:
    pids = _our_pids(layout, state)
    procs.kill(pids)
    return pids


def leftovers(layout: Layout) -> list[str]:
    """What is left of a cluster on this machine: looked up now, not remembered."""
    state = State.load(layout)
    found = [f"process {procs.describe(pid)}" for pid in sorted(_our_pids(layout, state))]
    for pid in procs.all_pids():  # programs of the home that somebody runs on the machine itself: a forgotten kubectl
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{pid}/exe").readlink()
            line = f"process {procs.describe(pid)}"
            if program.is_relative_to(layout.bin) and procs.start_time(pid) and line not in found:
                found.append(line)
    found += [f"mount {path}" for path in _mounts(layout)]
    found += [f"cgroup {path}" for path in cgroups.trees(NODES)]
    if Path(f"/sys/class/net/{HOST_LINK}").exists():
        found.append(f"link {HOST_LINK}")
    routes = call(["ip", "-4", "route", "show", "table", "all"]).splitlines() if host.which("ip") else []
    networks = tuple(str(node_pods(node)) for node in NODES)
    found += [f"route {line.strip()}" for line in routes if line.startswith(networks)]
    if state:
        for name, value in state.sysctls.items():
            now = Path("/proc/sys", name).read_text().strip()
            if now != value:
                found.append(f"sysctl {name} = {now}, was {value}")
        found += [f"folder {folder}" for folder in state.folders if Path(folder).exists()]
    return found


__all__ = [
    "Options",
    "down",
    "end",
    "environment",
    "heartbeat",
    "kill_api_server",
    "kill_node",
    "kubectl",
    "leftovers",
    "shielded",
    "start_api_server",
    "start_daemon",
    "start_node",
    "up",
    "wait_node_ready",
]
