"""A session's own objects in a cluster: a Lease that shows that it lives, and a pod outside every mesh.

The times in a Lease are the API server's own, as the session read them, and are compared with the same clock, so the
clocks of other machines play no part. The Lease of a crashed session expires a minute later.
"""

import contextlib
import datetime
import os
import socket
import threading
from collections.abc import Iterable

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import manifests, wait
from meshtrial.testbed.kubernetes.apply import MANAGER, OWNER, STUDY, Applier
from meshtrial.testbed.kubernetes.client import Cluster, ConflictError, Json, NotFoundError
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PodRef, is_ready, pod_ref, pods_of, uid
from meshtrial.testbed.kubernetes.resources import parse_time

NAME = "meshtrial-session"
DURATION_S = 60
RENEW_S, RETRY_S = 15.0, 2.0
_LEASES_GROUP = "/apis/coordination.k8s.io/v1"
_HOST = f"{manifests.NOTE}host"


class Session:
    """The namespace of a session, with its Lease, which a thread renews, and its probe: a pod outside of every mesh."""

    def __init__(
        self,
        applier: Applier,
        options: KubernetesOptions,
        namespace: str,
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self.namespace = namespace
        self.probe: PodRef | None = None
        self._applier, self._cluster, self._options = applier, applier.cluster, options
        self._renew_s, self._retry_s = renew_s, retry_s
        self._leases = f"{_LEASES_GROUP}/namespaces/{namespace}/leases"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_end, name="meshtrial-lease", daemon=True)

    def hold(self) -> None:
        """Create the Lease at the first call; while it is renewed, nobody removes what the session owns."""
        if self._thread.ident is None:
            self._applier.namespace(self.namespace)
            self.renew()
            self._thread.start()

    def renew(self) -> None:
        """Create the Lease, or renew it."""
        moment = datetime.datetime.fromtimestamp(self._cluster.server_time(), datetime.UTC)
        now = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            self._cluster.merge(f"{self._leases}/{NAME}", {"spec": {"renewTime": now}})
        except NotFoundError:
            owner, host = self._applier.owner, f"{socket.gethostname()}, process {os.getpid()}"
            times = {"leaseDurationSeconds": DURATION_S, "acquireTime": now, "renewTime": now}
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": NAME, "labels": owner.labels, "annotations": {_HOST: host}},
                "spec": {"holderIdentity": owner.id, **times},
            }
            with contextlib.suppress(ConflictError):
                self._cluster.post(self._leases, body)

    def _renew_until_end(self) -> None:
        wait_s = self._renew_s
        while not self._ended.wait(wait_s):
            try:
                self.renew()
                wait_s = self._renew_s
            except TestbedError:
                wait_s = self._retry_s  # an outage of the API server does not end the session

    def stop(self) -> None:
        """End the renewals; a renewal after the removal would create the Lease again, seen by others for a minute."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(self._renew_s)

    def release(self) -> None:
        """Mark the session as over; where that is impossible, the Lease expires."""
        if self._thread.ident is not None:
            self.stop()
            with contextlib.suppress(TestbedError):
                self._cluster.merge(f"{self._leases}/{NAME}", {"spec": {"holderIdentity": ""}})

    def forget_lost_probe(self) -> None:
        """Remove a probe that was replaced or is not ready, so that a lost one costs the runs of one block only."""
        if self.probe is None:
            return
        pods = pods_of(self._cluster, self.namespace)
        if any(uid(pod) == self.probe.uid and is_ready(pod) for pod in pods):
            return
        for pod in pods:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
            self._cluster.delete(path, grace_s=0, uid=uid(pod))
        self.probe = None

    def probe_pod(self) -> PodRef:
        """Return the pod outside of every mesh, created at the first call."""
        if self.probe is not None:
            return self.probe
        options = self._options
        self._applier.namespace(self.namespace)
        objects = manifests.patched(
            manifests.read(options.folder / "loadgen" / "probe.yaml"),
            manifests.in_namespace(self.namespace),
            manifests.images(options.images, options.image_pull_policy),
            manifests.pulled_with([name for _, name in options.pull_secrets]),
            manifests.placed(options.app_node_selector, options.app_tolerations),
        )
        try:
            self._applier.apply(objects)
            pods = wait.pods_ready(self._cluster, self.namespace, "", 1, options.deploy_timeout_s)
        except BaseException:
            with contextlib.suppress(TestbedError):
                self.remove()
            raise
        self.probe = pod_ref(pods[0], "fortio")
        return self.probe

    def remove(self) -> None:
        """Delete the namespace."""
        self.probe = None
        self._applier.delete_namespace(self.namespace, self._options.deploy_timeout_s)


def running_sessions(cluster: Cluster, namespaces: Iterable[Json] = ()) -> dict[str, str]:
    """Return the owners of living sessions, each with a description; TestbedError when that cannot be known.

    Call it after listing what is to be removed: a session has its Lease before any object but the namespace of the
    Lease. Of our ``namespaces``, the owner of one that is younger than a Lease's duration counts as alive, because its
    Lease may be missing yet.
    """
    ours = list(namespaces)
    leases = cluster.items(f"{_LEASES_GROUP}/leases", labelSelector=f"{manifests.MANAGED_BY}={MANAGER},{OWNER}")
    now_s = cluster.server_time() if leases or ours else 0.0
    sessions = {}
    for item in leases:
        spec, metadata = item.get("spec") or {}, item["metadata"]
        if not spec.get("holderIdentity") or not spec.get("renewTime"):
            continue
        age_s = now_s - parse_time(spec["renewTime"])
        if age_s <= int(spec.get("leaseDurationSeconds") or DURATION_S):
            host = (metadata.get("annotations") or {}).get(_HOST, "?")
            owner, study = metadata["labels"][OWNER], metadata["labels"].get(STUDY, "?")
            since = str(spec.get("acquireTime", "?"))[:19].replace("T", " ")
            sessions[owner] = f"study {study} is running (owner {owner}, on host {host}, since {since} UTC)"
    holders = {item["metadata"]["labels"][OWNER] for item in leases}
    for item in ours:
        created, labels = item["metadata"].get("creationTimestamp"), item["metadata"].get("labels") or {}
        owner = str(labels.get(OWNER))
        if owner not in holders and created and now_s - parse_time(created) <= DURATION_S:
            sessions[owner] = f"study {labels.get(STUDY, '?')} may just be starting (owner {owner}, since {created})"
    return sessions
