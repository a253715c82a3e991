"""Commands inside containers, binary-safe, each on a connection of its own.

A stream that ends without the API server's status is a broken stream, never a result: whoever may repeat
the command says so.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes import client as k8s
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from websocket import WebSocketException

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster

BUSYBOX = "/tools/busybox"  # lent to our own pods by an init container
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3


class BrokenStreamError(TestbedError):
    """The connection to the API server ended before the command did."""


@dataclass(frozen=True)
class PodRef:
    """A container of a pod, as it was when it was listed; ``uid`` tells it from a later one of the same name."""

    namespace: str
    name: str
    container: str
    uid: str = ""
    node: str = ""
    ip: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Exited:
    """How a command ended and what it wrote."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode(errors="replace")

    @property
    def both(self) -> str:
        """Standard output and error as text."""
        return (self.out + self.err).decode(errors="replace")


_UNREACHED = re.compile(r"error (sending request|dialing backend)")


class Running:
    """A command that runs in a container, with its streams."""

    def __init__(self, cluster: Cluster, pod: PodRef, command: Sequence[str], *, stdin: bool = False) -> None:
        self._pod = pod
        self._what = f"{pod}: {command[0]}"
        self._api = cluster.new_client()
        self._out, self._err = bytearray(), bytearray()
        try:
            self._ws: Any = stream(
                k8s.CoreV1Api(self._api).connect_get_namespaced_pod_exec,
                pod.name,
                pod.namespace,
                container=pod.container,
                command=list(command),
                stdin=stdin,
                stdout=True,
                stderr=True,
                tty=False,
                _preload_content=False,
                binary=True,
            )
        except ApiException as error:
            self._api.close()
            # A refused upgrade carries no status: the handshake's answer is in the text.
            if "Handshake status 40" in str(error.reason):
                raise TestbedError(f"{self._what}: refused: {refusal(str(error.reason))}") from None
            raise BrokenStreamError(str(cluster.translate(self._what, error))) from None

    def write(self, data: bytes) -> None:
        """Send to standard input."""
        try:
            self._ws.write_channel(_STDIN, data)
        except (WebSocketException, OSError) as error:
            raise BrokenStreamError(f"{self._what}: its stream broke: {error}") from None

    def line(self, timeout_s: float) -> str:
        """The next line of standard output."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._out:
            if not self._ws.is_open():
                raise BrokenStreamError(
                    f"{self._what}: ended early: {(self._out + self._err).decode(errors='replace')}"
                )
            if time.monotonic() > deadline:
                raise TestbedError(f"{self._what}: said nothing for {timeout_s:g} s")
            self._pump(deadline)
        text, _, rest = bytes(self._out).partition(b"\n")
        self._out = bytearray(rest)
        return text.decode(errors="replace").strip()

    def step(self, timeout_s: float) -> bool:
        """Take what comes for so long; True while the command runs."""
        self._pump(time.monotonic() + timeout_s)
        return bool(self._ws.is_open())

    def wait(self, timeout_s: float) -> Exited:
        """Wait for the end."""
        deadline = time.monotonic() + timeout_s
        while self._ws.is_open():
            if time.monotonic() > deadline:
                raise TestbedError(f"{self._what}: did not end within {timeout_s:g} s")
            self._pump(deadline)
        status = self._ws.read_channel(_STATUS)
        return Exited(self._code(bytes(status)), bytes(self._out), bytes(self._err))

    def close(self) -> None:
        """Close the connection; the container runtime then ends the command."""
        with contextlib.suppress(WebSocketException, OSError):
            self._ws.close()
        self._api.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pump(self, deadline: float) -> None:
        try:
            self._ws.update(timeout=max(0.0, min(1.0, deadline - time.monotonic())))
            self._take()
            if not self._ws.is_open():
                self._take()  # to read looks at the stream once more: what came with its end
        except (WebSocketException, OSError, ValueError) as error:
            raise BrokenStreamError(f"{self._what}: its stream broke: {error or type(error).__name__}") from None

    def _take(self) -> None:
        for channel, kept in ((_STDOUT, self._out), (_STDERR, self._err)):
            kept += self._ws.read_channel(channel)

    def _code(self, status: bytes) -> int:
        if not status:
            raise BrokenStreamError(f"{self._what}: its stream ended without a status")
        answer = json.loads(status)
        if answer.get("status") == "Success":
            return 0
        for cause in (answer.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        message = str(answer.get("message", "failed"))
        # The API server answers, the node's kubelet does not: that may pass, so it is tried again like a broken stream.
        kind = BrokenStreamError if _UNREACHED.search(message) else TestbedError
        raise kind(f"{self._what}: {message}")


def run(
    cluster: Cluster, pod: PodRef, command: Sequence[str], *, timeout_s: float = 30.0, again: bool = True
) -> Exited:
    """Run a command to its end, ``again`` for the cluster's patience where its stream breaks."""

    def once() -> Exited:
        with Running(cluster, pod, command) as running:
            return running.wait(timeout_s)

    return waiting.retried(once, lambda error: again and isinstance(error, BrokenStreamError), cluster.patience_s)


def refusal(reason: str) -> str:
    """What the API server said when it refused a stream: its answer is inside the handshake's error."""
    message = re.search(r'"message":"((?:[^"\\]|\\.)*)"', reason.replace("\\\\", "\\"))
    return message[1].replace('\\"', '"')[:300] if message else " ".join(reason.split())[:300]
