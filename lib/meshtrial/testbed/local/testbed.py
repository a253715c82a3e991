"""The local backend: real processes on this one Linux machine."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtrial import native
from meshtrial.design.load import Load
from meshtrial.design.study import Study, Treatment
from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.testbed.base import Block, MachineUse
from meshtrial.testbed.local import apps, host, others, proc, resources, tiers, versions
from meshtrial.testbed.local.dataplanes import check, data_plane, tools_of
from meshtrial.testbed.local.deployment import LocalDeployment, Spec


def _missing(*asked: Callable[[], object]) -> tuple[str, ...]:
    """What each says that it cannot give."""
    problems = []
    for ask in asked:
        try:
            ask()
        except MeshtrialError as error:
            problems.append(str(error))
    return tuple(dict.fromkeys(problems))


def _wakeable() -> None:
    host.CpuLatencyHold().close()


def _unavailable(tools: Collection[str]) -> tuple[str, ...]:
    """What prevents the use of these programs; those of ours that are not built yet are built first."""
    return _missing(
        functools.partial(native.provide, tools), *(functools.partial(native.version, tool) for tool in sorted(tools))
    )


class LocalTestbed:
    """Implements :class:`meshtrial.testbed.base.Testbed` with processes on loopback."""

    name = "local"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options: Mapping[str, Any] = (options or {}).get("parameters", {})
        self._awake: host.CpuLatencyHold | None = None

    def recover(self, study: Study, tell: Callable[[str], None]) -> None:
        """Nothing: processes end with the session that started them."""

    def preflight(self, study: Study) -> tuple[str, ...]:
        """Say what is missing for this study, one line each."""
        if problems := _missing(host.require, *([_wakeable] if self._options.get("keep_awake") else [])):
            return problems
        lacking = resources.problems(study) if study.app == tiers.APP else ()
        called = [apps.app(name) for name in sorted({treatment.app or study.app for treatment in study.treatments})]
        for app, load in itertools.product(called, study.loads):
            if not set(load.protocols) <= set(app.protocols):
                speaks = ", ".join(app.protocols)
                raise UsageError(f"protocol = {load.protocol!r}: the app {app.name} speaks {speaks}")
        for treatment, load in itertools.product(study.treatments, study.loads):
            check(treatment, load, study.app)
        for treatment in study.treatments:
            versions.of(treatment, self._versions)
        wanted = {"fortio"} | {tool for treatment in study.treatments for tool in tools_of(treatment, study.app)}
        wanted |= {app.name for app in called} & set(native.commands())
        return (*lacking, *_unavailable(wanted), *_missing(*(app.versions for app in called)))

    def environment(self) -> dict[str, Any]:
        """Host and versions."""
        return host.describe() | {"keep_awake": bool(self._options.get("keep_awake"))}

    def before_run(self) -> dict[str, float]:
        """How idle and how awake this machine is; from the first run on it is held awake where the plan says so."""
        if self._options.get("keep_awake") and self._awake is None:
            self._awake = host.CpuLatencyHold()
        return host.look()

    def used_between(self) -> MachineUse | None:
        """Use since the last call."""
        return self._meter.used()

    def watch(self, begun: Path | None = None) -> others.Watch:
        """Watch the programs of this machine that are neither this process, nor who began it, nor started by them."""
        return others.Watch(others.LoadSnapshot.read(begun) if begun is not None and begun.exists() else None)

    @functools.cached_property
    def _meter(self) -> proc.MachineMeter:
        """Made when it is first asked: a testbed can say that this machine has nothing to read."""
        return proc.MachineMeter()

    def generator_cpus(self) -> float:
        """Cores the load generators may use together: those that this process may run on."""
        return float(len(os.sched_getaffinity(0)))

    def together(self, treatments: Sequence[Treatment]) -> list[list[Treatment]]:
        """All of them: each has a network of its own."""
        return [list(treatments)]

    def make_ready(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        """Nothing: they share nothing but this machine."""

    def deploy(self, treatment: Treatment, load: Load, app: str) -> LocalDeployment:
        """Make a fresh deployment; on failure nothing of it is left."""
        check(treatment, load, app)
        of = apps.app(treatment.app or app)
        spec = Spec(treatment, load, of, self._options, versions.of(treatment, self._versions))
        return LocalDeployment(spec, data_plane(treatment, app).start)

    @functools.cached_property
    def _versions(self) -> Mapping[str, versions.Version]:
        """What the study declares; read once, for whole programs are read."""
        return versions.read_versions(str(self._options.get("versions", "")))

    def close(self) -> None:
        """Let the cores sleep again; nothing else is held between deployments."""
        if self._awake is not None:
            self._awake.close()
            self._awake = None
