"""Rates that treatments did not hold here, as the newest recorded study of the same question tells.

Of this very machine, as far as its processor, cores and memory tell: what another one held says nothing of it. On a
cluster nothing is told, for nodes come and go.
"""

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meshtrial.design.foreseen import Unheld
from meshtrial.design.load import CapacitySearch, OpenLoad
from meshtrial.design.study import Study
from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.records.listing import recorded_in
from meshtrial.records.schema import GENERATOR_GATES, RATE_GATES, RunRecord
from meshtrial.records.store import StudyStore

_MACHINE = ("cpu_model", "cpus", "cpus_allowed", "memory_bytes", "machine")


def unheld_before(study: Study, root: Path) -> tuple[Unheld, ...]:
    """Rates that its treatments did not hold the last time; ``root`` is the folder of all recorded studies."""
    machine = _this_machine() if study.backend == "local" else None
    if machine is None:
        return ()
    names = {treatment.name for treatment in study.treatments}
    for folder in reversed(recorded_in(root, study.name)):
        try:
            store = StudyStore.open(folder)
            before = store.plan.study
            there = store.environment.get("testbed")
            same = isinstance(there, Mapping) and all(there.get(name) == machine[name] for name in _MACHINE)
            if not same or (before.backend, before.app) != (study.backend, study.app):
                continue
            if names.isdisjoint(treatment.name for treatment in before.treatments) or not (records := store.records()):
                continue
        except MeshtrialError:
            continue  # `meshtrial status` says what is wrong with it
        return tuple(_unheld(before, records, folder.name))
    return ()


def _this_machine() -> Mapping[str, Any] | None:
    from meshtrial.testbed.local import host

    try:
        host.require()
    except MissingToolError:
        return None
    return host.describe()


def _unheld(before: Study, records: tuple[RunRecord, ...], where: str) -> Iterator[Unheld]:
    keeps = 1 - before.gates.rate_tolerance
    for load in before.loads:
        for treatment in before.treatments:
            runs = {run.run_id: run for run in records if (run.load, run.treatment) == (load.label, treatment.name)}
            if isinstance(load, CapacitySearch):
                found = [run.responses["capacity_rps"] for run in runs.values() if "capacity_rps" in run.responses]
                if found:
                    most = statistics.median(found)
                    yield Unheld(treatment.name, load, most / keeps, most, where)
                continue
            if not isinstance(load, OpenLoad):
                continue
            failed = [run.responses["achieved_rps"] for run in runs.values() if _fell_behind(run)]
            if 2 * len(failed) > len(runs):
                yield Unheld(treatment.name, load, load.rps, statistics.median(failed), where)


def _fell_behind(run: RunRecord) -> bool:
    """Whether a run did not hold its rate, with nothing else that could be the cause."""
    failed = {gate.name for gate in run.failed_gates}
    behind = RATE_GATES | GENERATOR_GATES
    alone = failed <= behind | {"errors"} and not run.other_reasons
    return bool(failed & behind) and alone and "achieved_rps" in run.responses
