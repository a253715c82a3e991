"""The local backend: real processes on this one Linux machine."""

import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtrial import native
from meshtrial.design.generated import system_of_app, systems_of
from meshtrial.design.load import Load
from meshtrial.design.study import Study, Treatment
from meshtrial.errors import MeshtrialError
from meshtrial.testbed.base import Block, MachineUse
from meshtrial.testbed.local import apps, host, proc, tiers, versions
from meshtrial.testbed.local.dataplanes import check, data_plane, tools_of
from meshtrial.testbed.local.deployment import LocalDeployment, Spec


def _problems(*actions: Callable[[], object]) -> tuple[str, ...]:
    """Return the message of each action that raises."""
    problems = []
    for action in actions:
        try:
            action()
        except MeshtrialError as error:
            problems.append(str(error))
    return tuple(dict.fromkeys(problems))


class LocalTestbed:
    """Implements :class:`meshtrial.testbed.base.Testbed` with processes on loopback."""

    name = "local"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options: Mapping[str, Any] = (options or {}).get("parameters", {})
        self._systems = systems_of(options or {})
        self._awake: host.CpuLatencyHold | None = None

    def recover(self, study: Study, tell: Callable[[str], None]) -> None:
        """Do nothing: processes end with the session that started them."""

    def preflight(self, study: Study) -> tuple[str, ...]:
        """Return what is missing for this study, one line each; build missing native programs."""
        wake_lock = [lambda: host.CpuLatencyHold().close()] if self._options.get("keep_awake") else []
        if problems := _problems(host.require, *wake_lock):
            return problems
        lacking = tiers.problems(study) if study.app == tiers.APP else ()
        used_apps = self.require_possible(study)
        tools = {"fortio"} | {tool for treatment in study.treatments for tool in tools_of(treatment, study.app)}
        tools |= {app.name for app in used_apps} & set(native.commands())
        versions_of = [functools.partial(native.version, tool) for tool in sorted(tools)]
        return (
            *lacking,
            *_problems(functools.partial(native.provide, tools), *versions_of),
            *_problems(*(app.versions for app in used_apps)),
        )

    def require_possible(self, study: Study) -> list[apps.App]:
        """Raise UsageError for what this backend cannot build on any machine; return the applications otherwise."""
        used_apps = [apps.app(name) for name in sorted({treatment.app or study.app for treatment in study.treatments})]
        for app, load in itertools.product(used_apps, study.loads):
            app.require(load)
        for app in used_apps:
            system_of_app(self._systems, app.name)
        for treatment, load in itertools.product(study.treatments, study.loads):
            check(treatment, load, study.app)
        for treatment in study.treatments:
            versions.of(treatment, self._versions)
        return used_apps

    def environment(self) -> dict[str, Any]:
        """Return the description of this machine."""
        return host.describe() | {"keep_awake": bool(self._options.get("keep_awake"))}

    def before_run(self) -> dict[str, float]:
        """Return how idle and fast this machine is; from the first run on, keep it awake if the plan requires it."""
        if self._options.get("keep_awake") and self._awake is None:
            self._awake = host.CpuLatencyHold()
        return host.sample()

    def settle(self) -> tuple[str, ...]:
        """Compact memory and drop caches; both need root, and are skipped without it."""
        return host.settle()

    def used_between(self) -> MachineUse | None:
        """Return the machine's use since the last call."""
        return self._meter.used()

    def watch(self, begun: Path | None = None) -> proc.Watch:
        """Watch the programs that belong neither to this process nor to the process that wrote ``begun``."""
        return proc.Watch(proc.LoadSnapshot.read(begun) if begun is not None and begun.exists() else None)

    @functools.cached_property
    def _meter(self) -> proc.MachineMeter:
        """Created on first use, because on a machine without /proc the preflight must still report that."""
        return proc.MachineMeter()

    def generator_cpus(self) -> float:
        """Return how many cores the load generators may use together: those that this process may use."""
        return float(len(os.sched_getaffinity(0)))

    def together(self, treatments: Sequence[Treatment]) -> list[list[Treatment]]:
        """Return one group of all treatments: each deployment has a network of its own."""
        return [list(treatments)]

    def make_ready(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        """Do nothing: deployments share nothing but this machine."""

    def deploy(self, treatment: Treatment, load: Load, app: str) -> LocalDeployment:
        """Start a fresh deployment; on failure all its processes are stopped."""
        check(treatment, load, app)
        version = versions.of(treatment, self._versions)
        used = apps.app(treatment.app or app)
        used.require(load)
        spec = Spec(treatment, load, used, self._options, version, system_of_app(self._systems, used.name))
        return LocalDeployment(spec, data_plane(treatment, app).start)

    @functools.cached_property
    def _versions(self) -> Mapping[str, versions.Version]:
        """Versions that the study declares, read once because whole programs are hashed."""
        return versions.read_versions(str(self._options.get("versions", "")))

    def close(self) -> None:
        """Let the cores sleep again."""
        if self._awake is not None:
            self._awake.close()
            self._awake = None
