"""What recorded studies predict: how long a study takes, and which rates its treatments did not hold on this machine.

A run takes the time of its load and an overhead for deploying, verifying, reading and removing. The overhead is a mean
over treatments, corrected by the runs as they are made: enough to decide whether to wait or to come back tomorrow.
"""

import datetime
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshtrial.design.foreseen import Unheld
from meshtrial.design.load import CapacitySearch, Load, OpenLoad
from meshtrial.design.plan import Plan, PlannedRun
from meshtrial.design.study import Study
from meshtrial.errors import MeshtrialError, MissingToolError, RecordError
from meshtrial.records.listing import recorded_in
from meshtrial.records.schema import GENERATOR_GATES, RATE_GATES, RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.progress import end_time, span

# Overhead of a run if no similar study is recorded. Measured: 0.5 to 1.0 s on two cores; 19 to 31 s on a cluster of two
# nodes with a fresh mesh for every run.
_OVERHEAD_S = {"local": 1.0, "kubernetes": 30.0}
# Concurrent deployments on a cluster share the overhead of their block, about 30 s, except about 2 s per slice.
_SLICE_S, _BLOCK_S = 2.0, 30.0
_UNUSED_S = {"local": 0.0, "kubernetes": 0.05}  # creating and removing an unused service; 1000 took 52 s
_COPY_S = 0.1  # each copy of the application, with its proxy
# Steps of a capacity search: a closed loop, the rates, and a confirming step of twice the length.
_SEARCH_STEPS = 16
_MACHINE = ("cpu_model", "cpus", "cpus_allowed", "memory_bytes", "machine")


def remaining_s(plan: Plan, waiting: Iterable[PlannedRun], overhead_s: float) -> float:
    """Return the seconds that these runs of a plan take."""
    loads_s = _load_seconds(plan)
    return sum(loads_s[run.load] + overhead_s for run in waiting)


def remaining_text(plan: Plan, seconds: float) -> str:
    """Return ``3 min 20 s left, until about 14:32``, with "at most" if the plan's stopping rule may end it earlier."""
    most = "at most " if plan.study.may_stop_early else ""
    return f"{most}{span(seconds)} left, until about {end_time(seconds)}"


def load_s(load: Load) -> float:
    """Return the seconds of load in a run, with its warm-up and the wait after it."""
    if isinstance(load, CapacitySearch):
        return load.warmup_s + _SEARCH_STEPS * load.duration_s
    return load.warmup_s + load.parts * load.call_s + load.after_s


def _load_seconds(plan: Plan) -> dict[str, float]:
    unused_s = _UNUSED_S[plan.study.backend]
    return {load.label: load_s(load) + unused_s * load.unused_services for load in plan.study.loads}


def expected_overhead_s(plan: Plan, records: Sequence[RunRecord], root: Path) -> float:
    """Return the expected overhead of a run: from these records, else from the newest similar study, else typical.

    ``root`` is the folder of all recorded studies; a similar study has the same name and backend.
    """
    study = plan.study
    if (known := overhead_s(plan, records)) is not None:
        return known
    for folder in reversed(recorded_in(root, study.name)):
        with suppress(MeshtrialError):  # `meshtrial status` reports unreadable studies
            store = StudyStore.open(folder)
            same = store.plan.study.backend == study.backend
            if same and (known := overhead_s(store.plan, store.records())) is not None:
                return known
    typical = _OVERHEAD_S[study.backend]
    if study.backend == "kubernetes" and all(study.take_turns(load) for load in study.loads):
        typical = _BLOCK_S / len(study.treatments) + _SLICE_S * statistics.mean(load.parts for load in study.loads)
    return typical + _COPY_S * statistics.mean(load.replicas for load in study.loads)


def overhead_s(plan: Plan, records: Sequence[RunRecord]) -> float | None:
    """Return the mean overhead of these runs in seconds; None if there are none."""
    if not records:
        return None
    loads_s = _load_seconds(plan)
    total_s, before = 0.0, None
    for started, ended in sorted(map(_times, records), key=lambda times: times[1]):
        own_s = (ended - started).total_seconds()
        since_s = own_s if before is None else (ended - before).total_seconds()
        # Concurrent deployments end together. A long gap is a pause of an interrupted study and does not count.
        total_s += since_s if since_s <= 3 * own_s + 60 else own_s
        before = ended
    foreign = [record.run_id for record in records if record.load not in loads_s]
    if foreign:
        raise RecordError(f"run {foreign[0]}: its load is not in the plan; restore it from a backup")
    return max(0.0, (total_s - sum(loads_s[record.load] for record in records)) / len(records))


def _times(record: RunRecord) -> tuple[datetime.datetime, datetime.datetime]:
    texts = (record.started_at, record.finished_at)
    try:
        started, ended = (datetime.datetime.fromisoformat(text).astimezone(datetime.UTC) for text in texts)
    except (ValueError, OverflowError) as error:
        raise RecordError(f"run {record.run_id}: invalid start or end ({error}); restore it from a backup") from None
    return started, max(started, ended)


def unheld_rates(study: Study, root: Path) -> tuple[Unheld, ...]:
    """Return the rates that treatments did not hold in the newest recorded study of the same question on this machine.

    ``root`` is the folder of all recorded studies. A machine is the same if its processor, cores and memory are. For
    clusters nothing is returned, because their nodes change.
    """
    machine = _this_machine() if study.backend == "local" else None
    if machine is None:
        return ()
    names = {treatment.name for treatment in study.treatments}
    for folder in reversed(recorded_in(root, study.name)):
        try:
            store = StudyStore.open(folder)
            before = store.plan.study
            recorded = store.environment.get("testbed")
            same = isinstance(recorded, Mapping) and all(recorded.get(name) == machine[name] for name in _MACHINE)
            if not same or (before.backend, before.app) != (study.backend, study.app):
                continue
            if names.isdisjoint(treatment.name for treatment in before.treatments) or not (records := store.records()):
                continue
        except MeshtrialError:
            continue  # `meshtrial status` reports unreadable studies
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
    tolerated = 1 - before.gates.rate_tolerance
    for load in before.loads:
        for treatment in before.treatments:
            runs = {run.run_id: run for run in records if (run.load, run.treatment) == (load.label, treatment.name)}
            if isinstance(load, CapacitySearch):
                rates = [run.responses["capacity_rps"] for run in runs.values() if "capacity_rps" in run.responses]
                if rates:
                    capacity = statistics.median(rates)
                    yield Unheld(treatment.name, load, capacity / tolerated, capacity, where)
                continue
            if not isinstance(load, OpenLoad):
                continue
            achieved = [run.responses["achieved_rps"] for run in runs.values() if _fell_behind(run)]
            if 2 * len(achieved) > len(runs):
                yield Unheld(treatment.name, load, load.rps, statistics.median(achieved), where)


def _fell_behind(run: RunRecord) -> bool:
    """Return whether a run did not hold its rate, and nothing else could have caused that."""
    failed = {gate.name for gate in run.failed_gates}
    behind = RATE_GATES | GENERATOR_GATES
    only_behind = failed <= behind | {"errors"} and not run.other_reasons
    return bool(failed & behind) and only_behind and "achieved_rps" in run.responses
