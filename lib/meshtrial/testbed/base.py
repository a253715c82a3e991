"""The protocol of both backends. A testbed knows nothing about statistics; the runner nothing about processes.

One run is: ``make_ready`` for concurrent deployments, ``deploy`` (a fresh application, proxies, keys),
``prove("before")``, a discarded warm-up through ``generate``, the measured ``generate`` between two ``snapshot`` calls,
``prove("after")``, ``close``. Concurrent deployments are deployed, proven and closed in threads of their own; one at a
time is loaded, and the others are kept warm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from meshtrial.design.load import Load
from meshtrial.design.study import Study, Treatment
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.load.propagation import ChangeTime
from meshtrial.records.schema import ComponentUsage, Proof


@dataclass(frozen=True)
class Block:
    """The block of a plan whose runs are made; its groups and repeats follow each other."""

    name: str
    # Source of its random choices, restarted for each of its groups; None leaves the nodes to the testbed.
    drawn: np.random.Generator | None


@dataclass
class Facts:
    """A deployment's report besides its counters; ``extra`` of ``run.json``."""

    fresh: bool = True  # False if kept from an earlier run, which `ready_s` belongs to
    ready_s: float | None = None  # the deployment's own time until ready, if it knows it
    hold_s: float = 0.0  # how long the application waits by design
    endpoints: int = 0  # their number if the study varies it, else 0
    proxies: int = 0  # of these endpoints
    responses: dict[str, float] = field(default_factory=dict)  # further responses by name
    notes: dict[str, Any] = field(default_factory=dict)  # for readers of the record; nothing is computed from them

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        sizes = {"hold_s": self.hold_s, "endpoints": self.endpoints, "proxies": self.proxies} if self.endpoints else {}
        return {**sizes, **({"responses": self.responses} if self.responses else {}), **self.notes}


class Deployment(Protocol):
    """A running treatment that can be loaded. Closing it removes everything that it made."""

    @property
    def target(self) -> Target:
        """The addresses that the generators call."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of everything that takes part, by name."""

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Return the proofs that the treatment is what its label states; ``requests`` were sent since ``before``."""

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Return the counters of every component, cumulative; :func:`usage_between` subtracts two of them."""

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Return CPU seconds so far and resident bytes of every component, cheap enough to be read every second.

        Empty where only slow readings exist.
        """

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Make the calls at the same moment and wait for all of them."""

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """Keep making a call, until another one, or None, is given; its results are discarded."""

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Restart a part (see ``study.RESTARTS``) while others call; returns when it serves again."""

    def changes(self) -> tuple[str, ...]:
        """Return which of ``design.changes.CHANGES`` it supports; empty where nothing can change under load."""

    def change(self, change: str, on: bool) -> ChangeTime:
        """Make a change to the deployment, or revert it; return as soon as its control plane has accepted that."""

    def churn(self, number: int) -> None:
        """Make the ``number``-th background change, to something that no request uses."""

    def facts(self) -> Facts:
        """Return what this deployment reports, when the load is over."""

    def collect_logs(self, folder: Path) -> None:
        """Copy the components' logs into the run's folder."""

    def close(self) -> None:
        """Stop and remove everything; called once, on success, failure and interruption alike."""


@dataclass(frozen=True)
class MachineUse:
    """How the CPU time of the machine (or the mean of its nodes) was used over a period."""

    busy: float  # share that was not idle, 0 to 1, including stolen time
    # Share that a virtual machine's host gave to others while a CPU had work here; None where it is unknown.
    stolen: float | None = None
    # CPU seconds of all programs together, and CPU seconds of all cores; None on nodes, whose total includes their own
    # daemons and so does not show other programs.
    programs_s: float | None = None
    total_s: float | None = None
    own_s: float = 0.0  # CPU seconds of this process, which is part of the instrument

    def foreign_s(self, components_s: float) -> float | None:
        """Return the CPU seconds of programs that are neither this process nor components of the run.

        The components used ``components_s``.
        """
        return None if self.programs_s is None else max(0.0, self.programs_s - components_s - self.own_s)


@dataclass(frozen=True)
class Program:
    """A program that does not belong to the study."""

    name: str
    pid: int
    share: float  # of the time of all cores


@dataclass(frozen=True)
class Others:
    """Use of a machine by programs outside the study over a period; shares of the time of all cores."""

    share: float  # of all programs
    busiest: tuple[Program, ...] = ()  # the three busiest that are visible
    unseen: float = 0.0  # of programs that are not visible, for example of other users


# Returns what other programs used since the last call, after waiting this number of seconds.
Watch = Callable[[float], Others]


class Testbed(Protocol):
    """A backend."""

    @property
    def name(self) -> str:
        """``local`` or ``kubernetes``."""

    def recover(self, study: Study, tell: Callable[[str], None]) -> None:
        """Remove what an earlier session of this study left, before the study is resumed."""

    def preflight(self, study: Study) -> tuple[str, ...]:
        """Return a line for each thing that this study lacks, with the remedy; empty when it can start."""

    def environment(self) -> dict[str, Any]:
        """Return host or cluster and the versions of every binary and image, for ``environment.json``."""

    def before_run(self) -> dict[str, float]:
        """Return the machine's state shortly before a run, as responses that are reported but never judged."""

    def settle(self) -> tuple[str, ...]:
        """Prepare the machine, so that sessions begin in the same state; return sentences on what was done."""

    def used_between(self) -> MachineUse | None:
        """Return the use of the machine since the last call, or None where it cannot be read."""

    def watch(self, begun: Path | None = None) -> Watch | None:
        """Begin to watch other programs, where they can be distinguished from the study: on one machine.

        ``begun`` is a file with a snapshot that another process of the study took at the beginning.
        """

    def generator_cpus(self) -> float:
        """Return how many cores the load generator may use."""

    def together(self, treatments: Sequence[Treatment]) -> list[list[Treatment]]:
        """Return groups of treatments whose deployments may be concurrent, as few as possible."""

    def make_ready(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        """Prepare concurrent deployments: what they share, whether there is room, and their nodes.

        TestbedError where they are not possible.
        """

    def deploy(self, treatment: Treatment, load: Load, app: str) -> Deployment:
        """Return a fresh deployment that serves; on failure remove everything and raise TestbedError."""

    def close(self) -> None:
        """Release what the testbed itself holds."""


def usage_between(
    before: Mapping[str, ComponentUsage], after: Mapping[str, ComponentUsage]
) -> tuple[ComponentUsage, ...]:
    """Subtract the counters of two snapshots by component; memory is that of the second."""
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
