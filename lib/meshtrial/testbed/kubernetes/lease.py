"""A sign of life: while a session runs it holds a Lease, so that nobody cleans up under it.

The times in it are the API server's own, as the session read them, and are compared with that clock again: clocks of
other machines play no part. A session that crashes renews no more, and is over for everybody a minute later.
"""

import contextlib
import datetime
import os
import socket
import threading
from collections.abc import Iterable

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import MANAGED_BY, MANAGER, OWNER, STUDY, Owner
from meshtrial.testbed.kubernetes.client import Cluster, ConflictError, Json, NotFoundError
from meshtrial.testbed.kubernetes.kubelet import parse_time
from meshtrial.testbed.kubernetes.manifests import NOTE

NAME = "meshtrial-session"
DURATION_S = 60
RENEW_S, RETRY_S = 15.0, 2.0
_GROUP = "/apis/coordination.k8s.io/v1"
_HOST = f"{NOTE}host"


class SessionLease:
    """The Lease of one session, in a namespace that stands until its end, renewed by a thread of its own."""

    def __init__(
        self, cluster: Cluster, owner: Owner, namespace: str, renew_s: float = RENEW_S, retry_s: float = RETRY_S
    ) -> None:
        self._cluster, self._owner = cluster, owner
        self._renew_s, self._retry_s = renew_s, retry_s
        self._list = f"{_GROUP}/namespaces/{namespace}/leases"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="meshtrial-lease", daemon=True)

    def hold(self) -> None:
        """Take it, and renew it until :meth:`release`."""
        self.renew()
        self._thread.start()

    def stop(self) -> None:
        """Renew it no more: whoever empties its namespace finds it gone for good, and others see it for a minute."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(self._renew_s)

    def release(self) -> None:
        """Say that the session is over; where that cannot be said, the Lease tells it by its age."""
        if self._thread.ident is None:
            return
        self.stop()
        with contextlib.suppress(TestbedError):
            self._cluster.merge(f"{self._list}/{NAME}", {"spec": {"holderIdentity": ""}})

    def _live(self) -> None:
        wait_s = self._renew_s
        while not self._over.wait(wait_s):
            try:
                self.renew()
                wait_s = self._renew_s
            except TestbedError:
                wait_s = self._retry_s  # an API server that is away for a while is no reason to stop

    def renew(self) -> None:
        """Take it, or show once more that the session lives."""
        now = _micro_time(self._cluster.server_time())
        try:
            self._cluster.merge(f"{self._list}/{NAME}", {"spec": {"renewTime": now}})
        except NotFoundError:
            with contextlib.suppress(ConflictError):
                self._cluster.post(self._list, self._body(now))

    def _body(self, now: str) -> Json:
        notes = {_HOST: f"{socket.gethostname()}, process {os.getpid()}"}
        spec = {"holderIdentity": self._owner.id, "leaseDurationSeconds": DURATION_S}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "labels": self._owner.labels, "annotations": notes},
            "spec": {**spec, "acquireTime": now, "renewTime": now},
        }


def running(cluster: Cluster, namespaces: Iterable[Json] = ()) -> dict[str, str]:
    """Owners whose sessions are alive, each with a few words about it; a TestbedError when that cannot be known.

    Whoever removes something asks after having listed it: a session has its Lease before anything but the namespace
    that the Lease lies in. Of the ``namespaces`` of ours given, one that is younger than a Lease lives may wait for
    its own, so its owner counts as alive.
    """
    ours = list(namespaces)
    leases = cluster.items(f"{_GROUP}/leases", labelSelector=f"{MANAGED_BY}={MANAGER},{OWNER}")
    now = cluster.server_time() if leases or ours else 0.0
    sessions = {}
    for item in leases:
        spec, metadata = item.get("spec") or {}, item["metadata"]
        if not spec.get("holderIdentity") or not spec.get("renewTime"):
            continue
        age_s = now - parse_time(spec["renewTime"])
        if age_s <= int(spec.get("leaseDurationSeconds") or DURATION_S):
            host = (metadata.get("annotations") or {}).get(_HOST, "?")
            owner, study = metadata["labels"][OWNER], metadata["labels"].get(STUDY, "?")
            since = str(spec.get("acquireTime", "?"))[:19].replace("T", " ")
            sessions[owner] = f"study {study} is running (owner {owner}, on host {host}, since {since} UTC)"
    holders = {item["metadata"]["labels"][OWNER] for item in leases}
    for item in ours:
        made, labels = item["metadata"].get("creationTimestamp"), item["metadata"].get("labels") or {}
        owner = str(labels.get(OWNER))
        if owner not in holders and made and now - parse_time(made) <= DURATION_S:
            sessions[owner] = f"study {labels.get(STUDY, '?')} may just be starting (owner {owner}, since {made})"
    return sessions


def _micro_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
