"""How far a pod's clock is from this machine's: asked at the edge of its seconds, for that is all a shell tells.

A pod that says a new second as it begins is heard a moment later. So its clock is behind by at most what was heard, and
by no less than that without the way that the words took, which is at most the time of a question and its answer, and
without a turn of the shell's loop, which looks again and again whether the second has come.
"""

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
  s=$($b date +%s); n=$s; k=0
  while [ "$n" = "$s" ]; do n=$($b date +%s); k=$((k + 1)); done
  echo "$n $k"
done
""".strip()


@dataclass(frozen=True)
class ClockOffset:
    """A clock against this machine's."""

    offset_s: float  # this machine's clock less the other
    error_s: float  # it is within so much of that


def measure_offset(cluster: Cluster, pod: PodRef) -> ClockOffset:
    """Ask a load pod; TestbedError where it says nothing of the kind."""
    with Running(cluster, pod, [_BUSYBOX, "sh", "-c", _SCRIPT], stdin=True) as running:
        running.line(30)
        asked = time.monotonic()
        running.write(b"\n")
        running.line(30)
        answer_s = time.monotonic() - asked
        heard, turns = [], []
        for _ in range(_SECONDS):
            said = running.line(30)
            now = time.time()
            second, _, turned = said.partition(" ")
            if not (second.isdigit() and turned.isdigit()):
                raise TestbedError(f"{pod}: said {said[:60]!r} when it was asked what time it is")
            heard.append(now - int(second))
            turns.append(int(turned))
    # The loop began somewhere within the first second; the others it saw whole.
    return estimate(heard, answer_s, 1 / max(1, min(turns[1:])))


def estimate(heard: list[float], answer_s: float, turn_s: float) -> ClockOffset:
    """From how late some seconds were heard, how long a question and its answer took, and a turn of the loop."""
    # The quickest word of several is late the least.
    error_s = (answer_s + turn_s) / 2
    return ClockOffset(min(heard) - error_s, error_s)
