"""A generator's results on their way home: packed in the pod, fetched in pieces, checked, unpacked."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

from meshtrial.errors import TestbedError
from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.execs import BUSYBOX, PodRef, run

_CHUNK = 4 << 20


def fetch(cluster: Cluster, pod: PodRef, path: str, size: int, digest: str) -> bytes:
    """Bring a file back in pieces, each asked for again where the connection broke; whole or not at all.

    Raises
    ------
    TestbedError
        When its size or SHA-256 is not what the pod said.
    """
    data = bytearray()
    while len(data) < size:
        # dd counts in blocks of the chunk: every piece starts on a multiple of it.
        command = [BUSYBOX, "dd", f"if={path}", f"bs={_CHUNK}", f"skip={len(data) // _CHUNK}", "count=1"]
        piece = run(cluster, pod, command, timeout_s=120)
        wanted = min(_CHUNK, size - len(data))
        if piece.code != 0 or len(piece.out) != wanted:
            said = piece.err.decode(errors="replace")[:200]
            raise TestbedError(f"{pod}: {path}: {len(piece.out)} of {wanted} bytes came back: {said}")
        data += piece.out
    if hashlib.sha256(data).hexdigest() != digest:
        raise TestbedError(f"{pod}: {path}: came back with another SHA-256 than it has in the pod")
    return bytes(data)


def parse_usage(text: str, name: str) -> ComponentUsage:
    """``time``'s line: elapsed, user and system seconds, voluntary and other context switches."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or len(lines[-1]) != 5:
        raise TestbedError(f"load generator {name}: its CPU time is missing ({text.strip()[:100]!r})")
    elapsed, user, system, voluntary, other = lines[-1]
    return ComponentUsage(
        name,
        "load generator",
        float(elapsed),
        float(user) + float(system),
        None,
        switches=int(voluntary) + int(other),
    )


def unpack(data: bytes) -> dict[str, bytes]:
    """The files of a tar.gz archive, by their names."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                found[Path(member.name).name] = content.read()
    return found


def tail(text: str) -> str:
    """The last lines, for a message."""
    lines = [line for line in text.splitlines() if line.strip()]
    return " ".join(lines[-3:])[:400] or "it said nothing"
