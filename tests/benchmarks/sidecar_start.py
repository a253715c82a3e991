"""How long 600 sidecars take to start, forked from one and started singly, in turns. Run by hand, on a quiet machine:

.venv/bin/python tests/benchmarks/sidecar_start.py [REPLICAS A TIER] [ROUNDS]
"""

from __future__ import annotations

import sys

import numpy as np

from meshtrial import native
from meshtrial.design.study import Load, Treatment
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.scaleout import deploy

GIB = 2.0**30


def start(replicas: int) -> tuple[float, float, float]:
    """Seconds until all are configured, their CPU seconds until then, their memory in GiB."""
    made = deploy(Treatment.parse("sidecar+mtls"), Load(200, 10, 2, replicas=replicas), "tiers", {})
    try:
        begun = made.told.notes["start"]
        assert made.fleet is not None
        memory = sum(filter(None, map(proc.pss_bytes, made.fleet.pids)))
        return begun["configured_s"], begun["proxies_cpu_s"], memory / GIB
    finally:
        made.close()


def main(replicas: int = 200, rounds: int = 3) -> None:
    """Print a line a start, and the ratio of the medians."""
    library = native.forkserver()
    seconds: dict[str, list[float]] = {"forked": [], "singly": []}
    for _ in range(rounds):
        for how, found in seconds.items():
            native.forkserver = (lambda: library) if how == "forked" else (lambda: None)
            wall, cpu, memory = start(replicas)
            found.append(wall)
            print(f"{3 * replicas} sidecars {how}: {wall:.1f} s, CPU {cpu:.1f} s, {memory:.2f} GiB", flush=True)
    ratio = np.median(seconds["forked"]) / np.median(seconds["singly"])
    print(f"forked / singly: {ratio:.2f}; the limit for 600 is 30 s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
