"""How long 600 sidecars take to start, forked from one and started singly, in turns: ``[REPLICAS A TIER] [ROUNDS]``."""

import sys
from collections.abc import Iterator

import numpy as np
from benchmarks.table import Row, main

from meshtrial import native
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.testbed import LocalTestbed

GIB = 2.0**30
LIMIT_S = 30.0


def start(replicas: int) -> tuple[float, float, float]:
    """Seconds until all are configured, their CPU seconds until then, their memory in GiB."""
    load = FixedRate(200, replicas, 2, replicas=replicas)
    made = LocalTestbed().deploy(Treatment.parse("sidecar+mtls"), load, "tiers")
    try:
        begun = made.facts().notes["start"]
        (batch,) = made.fleet.batches
        memory = sum(filter(None, map(proc.pss_bytes, batch.pids)))
        return begun["configured_s"], begun["proxies_cpu_s"], memory / GIB
    finally:
        made.close()


def rows(replicas: str = "200", rounds: str = "3") -> Iterator[Row]:
    """The median of each way, beside the other and beside the limit."""
    library = native.forkserver()
    seconds: dict[str, list[float]] = {"forked": [], "singly": []}
    for _ in range(int(rounds)):
        for how, found in seconds.items():
            native.forkserver = (lambda: library) if how == "forked" else (lambda: None)
            wall, cpu, memory = start(int(replicas))
            found.append(wall)
            said = f"{how}: {wall:.1f} s, CPU {cpu:.1f} s, {memory:.2f} GiB"
            print(f"{3 * int(replicas)} sidecars {said}", file=sys.stderr, flush=True)
    forked, singly = (float(np.median(found)) for found in seconds.values())
    what = f"{3 * int(replicas)} sidecars started and configured (median of {rounds})"
    yield Row(what, f"{forked:.1f} s forked from one", f"{singly:.1f} s started singly", forked / singly)
    yield Row(what, f"{forked:.1f} s forked from one", f"{LIMIT_S:g} s, the limit", forked / LIMIT_S)


if __name__ == "__main__":
    main(rows)
