"""The nodes: configuration, start, readiness, power loss and return."""

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from testcluster import cgroups, host, pki, procs
from testcluster.clients import kubectl
from testcluster.controlplane import end
from testcluster.images import archives, node_images
from testcluster.meshimages import MeshImages
from testcluster.procs import wait_for
from testcluster.settings import (
    CGROUP_PREFIX,
    CLUSTER_DOMAIN,
    DNS_ADDRESS,
    HERE,
    NODES,
    POD_NETWORK,
    ClusterError,
    Layout,
    Options,
    node_address,
    node_pods,
)
from testcluster.state import State

# Without these no pod starts; the other images follow while the kubelets already register.
_FIRST_IMAGES = ("pause", "coredns")


def _reserved_cpus(node: str) -> str:
    """Give the other programs the CPUs that a pinned node leaves free."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < len(NODES):
        raise ClusterError(f"cannot pin {len(NODES)} nodes to {len(cpus)} CPU")
    own = cpus[NODES.index(node) :: len(NODES)]
    return ",".join(str(cpu) for cpu in range(os.cpu_count() or 1) if cpu not in own)


def write_node(layout: Layout, node: str, machine: host.Machine, options: Options, images: dict[str, str]) -> None:
    """Write the configuration of containerd, the pod network, the kubelet and the proxy."""
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
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder / "opt"}"  # else it makes /opt/containerd on the machine
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
        # The disk belongs to the whole machine, so its fill level says nothing about these pods.
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
    foreign = MeshImages.load(layout).archives
    images = list(node_images(layout, meshes=bool(foreign)))
    first = archives(layout, [name for name in images if name in _FIRST_IMAGES])
    rest = archives(layout, [name for name in images if name not in _FIRST_IMAGES])
    init: list[str | Path] = [
        *("unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child", "--"),
        *(HERE / "node-init.sh", node, node_address(node), folder, layout.bin, layout.logs / "cluster"),
        *(state.options["plugins"], state.options["housekeeping"], *first, "--", *rest, *foreign),
    ]
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    log = layout.logs / "cluster" / f"node-{node}.log"
    state.procs[node] = procs.spawn(node, init, log, netns=layout.netns(node), env=environment)
    state.save()


def kill_node(layout: Layout, state: State, node: str) -> None:
    """End a node at once with all its processes, as a power cut would."""
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
    """Return the time of a node's last status; empty if it never sent one."""
    path = "{.status.conditions[?(@.type=='Ready')].lastHeartbeatTime}"
    return kubectl(layout, "get", "node", node, "--ignore-not-found", "-o", f"jsonpath={path}", timeout_s=10)


def wait_node_ready(layout: Layout, node: str, *, since: str = "", timeout_s: float = 90) -> None:
    """Wait until a node is Ready, with a heartbeat newer than `since`."""
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
    timeout_s = 900 if MeshImages.load(layout).archives else 180  # a gigabyte of others' images on a slow disk
    wait_for(f"image import on {node}", (folder / "imported").exists, timeout_s)
    failed = folder / "import-failed"
    if failed.exists():
        log = layout.logs / "cluster" / f"import-{node}.log"
        raise ClusterError(f"{node} cannot import {failed.read_text().splitlines()[0][:500]} ({log})")


def _meaning(item: Path) -> bytes:
    """Return a file's bytes; a network configuration is parsed, because a removed plugin reorders it."""
    if item.suffix in (".conf", ".conflist"):
        with contextlib.suppress(ValueError):
            return json.dumps(json.loads(item.read_text()), sort_keys=True).encode()
    return item.read_bytes()


def marks(layout: Layout, state: State, node: str) -> list[str]:
    """Return what meshes change on a node outside its containers, as lines: pod network, its plugins, packet rules.

    Rules of the proxy of Services are left out: they follow every Service that appears and disappears.
    """
    found = []
    for inside, path in (("cni-config", "/etc/cni/net.d"), ("cni-plugins", "/opt/cni/bin")):
        folder = layout.run / node / inside
        for item in sorted(item for item in folder.rglob("*") if item.is_file()):
            digest = hashlib.sha256(_meaning(item)).hexdigest()[:12]
            found.append(f"{node}: {path}/{item.relative_to(folder)} {digest}")
    for save in (["iptables-save"], ["ip6tables-save"], ["ip", "rule"], ["ip", "-6", "rule"]):
        answer = procs.call(["nsenter", f"--net={layout.netns(node)}", "--", *save])
        rules = [line.partition(" [")[0] for line in answer.splitlines() if line and line[0] not in "#*"]
        found += [f"{node}: {save[0]}: {line}" for line in rules if "KUBE-" not in line and line != "COMMIT"]
    return list(dict.fromkeys(found))
