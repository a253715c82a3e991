"""Randomised complete blocks, drawn from one seed and sealed before the first run.

A block is one pass over all treatments at one load, in a random order of its own. Where a study has several loads, the
blocks with the same number, one for each load, are run in random order as well, so that drift is not mistaken for an
effect of the load. Orders that are not random are negative controls, or those of scale-out: ascending, where each size
is a new deployment, and growing, where a treatment's deployment is kept from size to size.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from meshtrial.design.load import Load
from meshtrial.design.migration import PLAN_1, study_of_1
from meshtrial.design.study import Study, Treatment
from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import SHAPE_ERRORS, of_schema, read, reason

SCHEMA = "meshtrial.plan/2"
# A failed run is repeated once, inside its block.
ATTEMPTS = 2


def divided(blocks: int, shares: int) -> tuple[range, ...]:
    """Return the blocks of each share, which are neighbours; the first shares get one more if they are not equal.

    Examples
    --------
    >>> [list(share) for share in divided(10, 3)]
    [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]
    """
    size, more = divmod(blocks, shares)
    ends = [0, *itertools.accumulate(size + (number < more) for number in range(shares))]
    return tuple(range(first + 1, last + 1) for first, last in itertools.pairwise(ends))


@dataclass(frozen=True)
class PlannedRun:
    """One fresh deployment that is to be measured."""

    run_id: str  # folder name: load (where there are several), block, position, treatment
    repetition: int  # from 1; the block's number within its load
    load: str
    position: int  # from 1; the place of the run within its block
    treatment: str
    sequence: int  # from 0; the place of the run in the whole plan


@dataclass(frozen=True)
class Plan:
    """A study and the order of its runs, with the digest that seals both."""

    study: Study
    runs: tuple[PlannedRun, ...]
    sha256: str

    def load_of(self, run: PlannedRun) -> Load:
        """Return the load of a planned run."""
        return self.study.load(run.load)

    def treatment_of(self, run: PlannedRun) -> Treatment:
        """Return the treatment of a planned run."""
        return Treatment.parse(run.treatment)

    def block_of(self, run: PlannedRun) -> tuple[int, int]:
        """Return the repetition and the load's index of a run's block; the index is 0 where deployments grow."""
        labels = [load.label for load in self.study.loads]
        return run.repetition, 0 if self.study.order == "growing" else labels.index(run.load)

    @property
    def sessions(self) -> tuple[range, ...]:
        """The blocks of each session, in order."""
        return divided(self.study.blocks, self.study.sessions)

    def drawn_for(self, run: PlannedRun) -> np.random.Generator:
        """Return the generator of a run's block, for all that is drawn except the order; the same for all its runs."""
        return np.random.default_rng([self.study.seed, *self.block_of(run)])

    def turns(self, together: Sequence[PlannedRun]) -> list[list[int]]:
        """Return, for each round of slices, the order in which concurrent runs are measured, by index."""
        rng = self.drawn_for(together[0])
        return [rng.permutation(len(together)).tolist() for _ in range(self.load_of(together[0]).parts)]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``plan.json``."""
        return _body(self.study, self.runs) | {"sha256": self.sha256}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "plan.json") -> Plan:
        """Check the seal over what is recorded, and return the plan; an altered one is a RecordError."""
        is_former = data.get("schema") == PLAN_1
        body = of_schema(data, PLAN_1 if is_former else SCHEMA, where)
        try:
            sealed = digest({key: value for key, value in data.items() if key != "sha256"})
            if sealed == data.get("sha256"):
                study = study_of_1(body["study"]) if is_former else body["study"]
                return read(cls, body | {"study": Study.from_dict(study)})
        except (UsageError, *SHAPE_ERRORS) as error:
            raise RecordError(f"{where}: not a whole plan ({reason(error)}); restore it from a backup") from None
        raise RecordError(f"{where}: its content does not match its SHA-256; it was altered after it was sealed")


def digest(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON (sorted keys, no white space)."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def make_plan(study: Study) -> Plan:
    """Draw the whole order from the study's seed.

    One generator (PCG64) draws, for each number of a block, first the order of the loads and then the order of the
    treatments within each load. So the first k blocks of a longer plan are the same runs. Where deployments grow, the
    treatments
    have one order for each number, and each treatment goes through all loads in turn.
    """
    rng = np.random.default_rng(study.seed)
    runs: list[PlannedRun] = []
    several = len(study.loads) > 1
    for block in range(1, study.blocks + 1):
        for load, position, name in _pass(study, rng):
            run_id = (f"{load}-" if several else "") + f"{block:02d}-{position}-{name}"
            runs.append(PlannedRun(run_id, block, load, position, name, len(runs)))
    ordered = tuple(runs)
    return Plan(study, ordered, digest(_body(study, ordered)))


def _pass(study: Study, rng: np.random.Generator) -> Iterator[tuple[str, int, str]]:
    """Yield load, position and treatment of every run of the blocks with one number, in order."""
    names, loads = [t.name for t in study.treatments], [load.label for load in study.loads]
    if study.order == "growing":
        for position, index in enumerate(rng.permutation(len(names)), start=1):
            yield from ((load, position, names[int(index)]) for load in loads)
        return
    for load_index in rng.permutation(len(loads)) if study.order == "randomised" else range(len(loads)):
        order = range(len(names)) if study.order == "sequential" else rng.permutation(len(names))
        for position, index in enumerate(order, start=1):
            yield loads[int(load_index)], position, names[int(index)]


def _body(study: Study, runs: tuple[PlannedRun, ...]) -> dict[str, Any]:
    # A round trip through JSON makes the digest in memory equal to that of the file.
    body = {"schema": SCHEMA, "study": study.to_dict(), "runs": [asdict(run) for run in runs]}
    plain: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    return plain
