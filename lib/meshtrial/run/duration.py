"""How long a study takes: what its loads ask for, and what a run takes besides, as it was here the last time.

Besides are deploying, proving, reading what was measured and removing. It is an average over treatments: enough to know
whether to wait or to come back tomorrow, and put right by the runs themselves as they are made.
"""

import datetime
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from meshtrial.design.plan import Plan, PlannedRun
from meshtrial.design.study import Load
from meshtrial.errors import MeshtrialError, RecordError
from meshtrial.records.listing import recorded_in
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.progress import span, until

# Where nothing of the kind is recorded yet. Seen: 0.5 to 1.0 s on two cores, and on a cluster of two nodes with a fresh
# mesh for every run 19 to 31 s.
_BESIDES_S = {"local": 1.0, "kubernetes": 30.0}
# Where a block's deployments stand at once there, all of it but two seconds a slice is a block's: seen half a minute.
_SLICE_S, _BLOCK_S = 2.0, 30.0
_UNUSED_S = {"local": 0.0, "kubernetes": 0.05}  # each service that nobody calls, made and taken away: seen 52 s of 1000
_COPY_S = 0.1  # each copy of the application, with its proxy
# Steps of a capacity search: a closed loop, the rates, and the confirming of twice a step's length.
_SEARCH_STEPS = 16


def remaining_s(plan: Plan, waiting: Iterable[PlannedRun], overhead_s: float) -> float:
    """Seconds that these runs of a plan take."""
    each = _asked_by_load(plan)
    return sum(each[run.load] + overhead_s for run in waiting)


def said(plan: Plan, seconds: float) -> str:
    """``3 min 20 s left, until about 14:32``; at most so much where the plan's rule may end it earlier."""
    most = "at most " if plan.study.may_stop_early else ""
    return f"{most}{span(seconds)} left, until about {until(seconds)}"


def asked_s(load: Load) -> float:
    """Seconds of load that a run asks for, its warm-up among them."""
    if load.search:
        return load.warmup_s + _SEARCH_STEPS * load.duration_s
    return load.warmup_s + (load.duration_s if load.ramp else load.slices * load.call_s)


def _asked_by_load(plan: Plan) -> dict[str, float]:
    each_s = _UNUSED_S[plan.study.backend]
    return {load.label: asked_s(load) + each_s * load.unused_services for load in plan.study.loads}


def expected_overhead_s(plan: Plan, records: Sequence[RunRecord], root: Path) -> float:
    """What a run takes besides its load: as in the study so far, else as in the newest one like it that is recorded.

    ``root`` is the folder of all recorded studies; one of the same name and backend is like it.
    """
    known = overhead_s(plan, records)
    for folder in reversed(recorded_in(root, plan.study.name)):
        if known is not None:
            return known
        try:
            store = StudyStore.open(folder)
            if store.plan.study.backend == plan.study.backend:
                known = overhead_s(store.plan, store.records())
        except MeshtrialError:
            continue  # `meshtrial status` says what is wrong with it
    if known is not None:
        return known
    study = plan.study
    usual = _BESIDES_S[study.backend]
    if study.backend == "kubernetes" and all(study.take_turns(load) for load in study.loads):
        usual = _BLOCK_S / len(study.treatments) + _SLICE_S * statistics.mean(load.slices for load in study.loads)
    return usual + _COPY_S * statistics.mean(load.replicas for load in study.loads)


def overhead_s(plan: Plan, records: Sequence[RunRecord]) -> float | None:
    """What a run took besides its load, in the mean of these; None of none."""
    if not records:
        return None
    asked = _asked_by_load(plan)
    total_s, before = 0.0, None
    for started, ended in sorted(map(_times, records), key=lambda times: times[1]):
        own_s = (ended - started).total_seconds()
        since_s = own_s if before is None else (ended - before).total_seconds()
        # Deployments whose slices take turns end together; between two of an interrupted study lies a pause.
        total_s += since_s if since_s <= 3 * own_s + 60 else own_s
        before = ended
    foreign = [record.run_id for record in records if record.load not in asked]
    if foreign:
        raise RecordError(f"run {foreign[0]}: its load is none of the plan's; restore it from a backup")
    return max(0.0, (total_s - sum(asked[record.load] for record in records)) / len(records))


def _times(record: RunRecord) -> tuple[datetime.datetime, datetime.datetime]:
    texts = (record.started_at, record.finished_at)
    try:
        started, ended = (datetime.datetime.fromisoformat(text).astimezone(datetime.UTC) for text in texts)
    except (ValueError, OverflowError) as error:
        raise RecordError(
            f"run {record.run_id}: its times cannot be read ({error}); restore it from a backup"
        ) from None
    return started, max(started, ended)
