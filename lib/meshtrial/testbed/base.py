"""The protocol both backends keep. A testbed knows nothing of statistics; the runner nothing of processes.

One run is: ``make_ready`` for the deployments that stand at once, ``deploy`` (a fresh application, proxies, keys),
``prove("before")``, a discarded warm-up through ``generate``, the measured ``generate`` between two ``snapshot`` calls,
``prove("after")``, ``close``. Deployments that stand at once are deployed, proven and closed from threads of their own;
one at a time is loaded, and the others are kept warm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from meshtrial.design.load import Load
from meshtrial.design.study import Study, Treatment
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.load.obeyed import ChangeTime
from meshtrial.records.schema import ComponentUsage, Proof


@dataclass(frozen=True)
class Block:
    """The block of a plan whose runs are to be made: repeats and groups that follow each other are of the same one."""

    name: str
    # What has to be drawn for it, from the beginning for every one of its groups; None leaves places to the testbed.
    drawn: np.random.Generator | None


@dataclass
class Facts:
    """What a deployment says of itself besides its counters; ``extra`` of ``run.json``."""

    fresh: bool = True  # False where it was kept from an earlier run, whose time it took to be ready
    ready_s: float | None = None  # that time, where the deployment knows it better than whoever waited for it
    hold_s: float = 0.0  # what the application waits by design
    endpoints: int = 0  # where their number is what a study varies, else 0
    proxies: int = 0  # beside them
    responses: dict[str, float] = field(default_factory=dict)  # its own, by name
    notes: dict[str, Any] = field(default_factory=dict)  # for the record's reader; nothing is computed from them

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        sizes = {"hold_s": self.hold_s, "endpoints": self.endpoints, "proxies": self.proxies} if self.endpoints else {}
        return {**sizes, **({"responses": self.responses} if self.responses else {}), **self.notes}


class Deployment(Protocol):
    """A treatment that stands and can be loaded. Closing it removes everything that it made."""

    @property
    def target(self) -> Target:
        """What the generators call."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of everything that takes part, by name."""

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Demonstrate that the treatment is what its label says; ``requests`` were sent since ``before``."""

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Counters of every component, cumulative; :func:`usage_between` subtracts two of them."""

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """CPU seconds so far and resident bytes of every component, cheap enough to be asked for every second.

        Empty where there are only slow readings.
        """

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Make the calls at the same moment and wait for all of them."""

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """Make a call that goes on until another one, or None, is asked for; nothing of it is kept."""

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Restart a part (see ``study.RESTARTS``) while others call; returns when it serves again."""

    def changes(self) -> tuple[str, ...]:
        """Which of ``design.changes.CHANGES`` it has; empty where nothing of it can be changed under load."""

    def change(self, change: str, on: bool) -> ChangeTime:
        """Change it away from how it was deployed, or back; returns as soon as its control plane has taken that."""

    def churn(self, number: int) -> None:
        """Change something that no request meets, for the ``number``-th time."""

    def facts(self) -> Facts:
        """What this deployment says of itself, asked when the load is over."""

    def collect_logs(self, folder: Path) -> None:
        """Copy the components' logs into the run's folder."""

    def close(self) -> None:
        """Stop and remove everything; called once, on success, failure and interruption alike."""


@dataclass(frozen=True)
class MachineUse:
    """What became of the CPU time of the machine (or of the nodes, in the mean) over a while."""

    busy: float  # share that was not idle, 0 to 1; what the host took is in it
    # Share that a virtual machine's host gave to others while a CPU had work here; None where nobody tells.
    stolen: float | None = None
    # CPU seconds that programs ran, all of them together, and that there were over all cores; None where the total of
    # a node holds its own daemons too, so that it says nothing of other people's programs.
    programs_s: float | None = None
    total_s: float | None = None
    own_s: float = 0.0  # CPU seconds of this very process, which is part of the instrument

    def foreign_s(self, components_s: float) -> float | None:
        """CPU seconds of programs that are neither this process nor the components of the run, which used so much."""
        return None if self.programs_s is None else max(0.0, self.programs_s - components_s - self.own_s)


@dataclass(frozen=True)
class Program:
    """A program that is none of the study's."""

    name: str
    pid: int
    share: float  # of the time of all cores


@dataclass(frozen=True)
class Others:
    """What programs that are none of the study's used of a machine over a while; shares of the time of all cores."""

    share: float  # all of them together
    busiest: tuple[Program, ...] = ()  # the three busiest that can be seen
    unseen: float = 0.0  # those that cannot be seen, for example of other users


# What other programs used since it was asked last: over so many seconds, for which it waits.
Watch = Callable[[float], Others]


class Testbed(Protocol):
    """A backend."""

    @property
    def name(self) -> str:
        """``local`` or ``kubernetes``."""

    def recover(self, study: Study, tell: Callable[[str], None]) -> None:
        """Remove what an earlier session of this very study left behind, before it goes on."""

    def preflight(self, study: Study) -> tuple[str, ...]:
        """Say what is missing for this study, one line each with what to do; empty when it can start."""

    def environment(self) -> dict[str, Any]:
        """Host or cluster, versions of every binary and image, for ``environment.json``."""

    def before_run(self) -> dict[str, float]:
        """In what state the machine is, over a short look before a run: responses that are described only."""

    def used_between(self) -> MachineUse | None:
        """Use of the machine since the last call, None where it cannot be read."""

    def watch(self, begun: Path | None = None) -> Watch | None:
        """Begin to watch other programs, where they can be told from the study: on one machine.

        ``begun`` is a file with what another process of the study saw when that began.
        """

    def generator_cpus(self) -> float:
        """How many cores the load generator may use."""

    def together(self, treatments: Sequence[Treatment]) -> list[list[Treatment]]:
        """Which of these may stand at once: groups that follow each other, as few as they can be."""

    def make_ready(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        """Prepare for deployments that stand at once: what they share, whether there is room, and where they stand.

        TestbedError where they cannot stand.
        """

    def deploy(self, treatment: Treatment, load: Load, app: str) -> Deployment:
        """Make a fresh deployment and wait until it serves; on failure leave nothing and raise TestbedError."""

    def close(self) -> None:
        """Release what the testbed itself holds."""


def usage_between(
    before: Mapping[str, ComponentUsage], after: Mapping[str, ComponentUsage]
) -> tuple[ComponentUsage, ...]:
    """Subtract the counters of two snapshots, component by component; memory is that of the second."""
    return tuple(_used(before[name], end) if name in before else end for name, end in after.items())


def _used(start: ComponentUsage, end: ComponentUsage) -> ComponentUsage:
    return replace(
        end,
        window_s=end.window_s - start.window_s,
        cpu_s=end.cpu_s - start.cpu_s,
        throttled_s=_minus(end.throttled_s, start.throttled_s),
        switches=_minus(end.switches, start.switches),
    )


def _minus(end: float | None, start: float | None) -> Any:
    return None if end is None or start is None else end - start
