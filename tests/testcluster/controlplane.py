"""etcd, the API server, the controllers and the scheduler: how they start, and how the API server dies."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from testcluster import procs
from testcluster.clients import kubectl
from testcluster.procs import Proc, wait_for
from testcluster.settings import (
    API_ADDRESS,
    API_PORT,
    CLUSTER_DOMAIN,
    CONTROL_PLANE,
    SERVICE_NETWORK,
    ClusterError,
    Layout,
)
from testcluster.state import State

_ETCD = "http://127.0.0.1:2379"


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
    """Kill a process of ours and wait until it is gone."""
    if proc.alive():
        procs.kill([proc.pid])
    wait_for(f"end of {proc.name} ({proc.pid})", lambda: not proc.alive(), 10, every_s=0.02)


def start_control_plane(layout: Layout, state: State) -> None:
    """Start the whole control plane; return when the API server answers."""
    start_daemon(layout, state, "etcd", _etcd(layout))
    start_api_server(layout, state)
    start_daemon(layout, state, "kube-controller-manager", _controller_manager(layout))
    start_daemon(layout, state, "kube-scheduler", _component(layout, "kube-scheduler"))


def start_daemon(layout: Layout, state: State, name: str, command: Sequence[str | Path]) -> None:
    """Start a part of the control plane in its namespace and record it."""
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
        "--unsafe-no-fsync",  # the data is deleted with the cluster
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
        # The API server has no kube-proxy, so it calls webhooks at their pods' addresses.
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
        # With the defaults 600 pods take minutes.
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
        f"--flex-volume-plugin-dir={layout.run / 'volume-plugins'}",  # else it makes /usr/libexec/kubernetes
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
    ]
