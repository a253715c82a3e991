"""The pods of Helm's hooks, watched while Helm waits for them: it says "timed out" and, often, deletes them.

A chart's jobs before and after an installation fail in silence otherwise. What their pods said is kept as soon as
it is there, and a pod that waiting will not mend ends the wait.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import evidence, wait
from meshtrial.testbed.kubernetes.client import Cluster

# A registry or a kubelet may need a second try; what stands for so long stays.
_HOPELESS_S = 20.0


class HookWatch:
    """Called every second while Helm runs.

    Attributes
    ----------
    said : str
        What the last hook that had trouble said; empty where none had.
    evidence : dict
        Logs of those pods, as in :mod:`evidence`.
    """

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], settle: Sequence[str] = ()) -> None:
        self.said = ""
        self.evidence: dict[str, str] = {}
        self._cluster, self._namespaces, self._settle = cluster, tuple(namespaces), tuple(settle)
        self._since: dict[str, float] = {}

    def __call__(self) -> str:
        """Look; why Helm need not be waited for any longer, empty while it should be."""
        now = time.monotonic()
        hopeless = ""
        with contextlib.suppress(TestbedError):
            pods = [p for name in self._namespaces for p in evidence.pods_of(self._cluster, name)]
            for pod in filter(evidence.is_hook, pods):
                final = wait.first_problem([pod], self._settle)
                said = final or evidence.trouble(pod)
                if not said:
                    continue
                key = f"{pod['metadata']['uid']} {said}"
                if key not in self._since:
                    self._since[key] = now
                    words = evidence.last_words(self._cluster, pod)
                    self.said = f"{said}; {words}" if words else said
                    self.evidence |= evidence.logs_of(self._cluster, pod)
                if final and now - self._since[key] > _HOPELESS_S:
                    hopeless = self.said
        return hopeless
