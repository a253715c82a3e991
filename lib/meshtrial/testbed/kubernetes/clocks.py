"""How far a pod's clock is from this machine's: asked at the edge of its seconds, for that is all a shell tells.

A pod that says a new second as it begins is heard a moment later. So its clock is behind by at most what was heard, and
by no less than that without the way that the words took, which is at most the time of a question and its answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.execs import PodRef, Running

_SECONDS = 3
_BUSYBOX = "/tools/busybox"
# Answers once to every line that it is sent, then says each of some seconds as it begins.
_SCRIPT = f"""
b={_BUSYBOX}
echo ready
read -r _; echo back
for i in {" ".join(map(str, range(_SECONDS)))}; do
  s=$($b date +%s); n=$s
  while [ "$n" = "$s" ]; do n=$($b date +%s); done
  echo "$n"
done
""".strip()


@dataclass(frozen=True)
class Behind:
    """A clock against this machine's."""

    behind_s: float  # this machine's clock less the other
    error_s: float  # it is within so much of that


def behind(cluster: Cluster, pod: PodRef) -> Behind:
    """Ask a load pod; TestbedError where it says nothing of the kind."""
    with Running(cluster, pod, [_BUSYBOX, "sh", "-c", _SCRIPT], stdin=True) as running:
        running.line(30)
        asked = time.monotonic()
        running.write(b"\n")
        running.line(30)
        answer_s = time.monotonic() - asked
        heard = []
        for _ in range(_SECONDS):
            said = running.line(30)
            now = time.time()
            if not said.isdigit():
                raise TestbedError(f"{pod}: said {said[:60]!r} when it was asked what time it is")
            heard.append(now - int(said))
    # The quickest word of several is late the least.
    return estimate(heard, answer_s)


def estimate(heard: list[float], answer_s: float) -> Behind:
    """From how late some seconds were heard, and how long a question and its answer took."""
    late_s = min(heard)
    return Behind(late_s - answer_s / 2, answer_s / 2)
