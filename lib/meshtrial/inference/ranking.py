"""Which treatments are better than which: the rank interval of each, valid for all of them together.

All pairs of a study's family "between" are corrected together, so at least 1 - alpha of studies call no pair wrongly.
Every significant pair bounds a rank: a treatment that is worse than two others has rank 3 at best. Sources: Mogstad,
Romano, Shaikh & Wilhelm, Review of Economic Studies 91, 2024, section 3; Klein, Wright & Wieczorek, J. R. Stat. Soc. C
69, 2020. Pairs that are not significant leave ranks open; they never make two treatments equal.
"""

from dataclasses import dataclass

from meshtrial.design.responses import REGISTRY, Response
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.vocabulary import BETWEEN, VerdictLabel, directions


@dataclass(frozen=True)
class RankRange:
    """The ranks that a treatment may have."""

    treatment: str
    value: float | None  # median of the response in its stored unit; None if it was not compared
    # First and last possible rank, 1 being the best
    best: int
    worst: int
    # Treatments that it is significantly better or worse than
    better_than: tuple[str, ...]
    worse_than: tuple[str, ...]

    @property
    def places(self) -> str:
        """``2`` or ``2–4``."""
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


@dataclass(frozen=True)
class Ranking:
    """The ranks of all treatments by one response at one load, best first."""

    load: str
    response: Response
    places: tuple[RankRange, ...]

    @property
    def n_significant(self) -> int:
        """Number of pairs with a significant difference."""
        return sum(len(place.better_than) for place in self.places)

    @property
    def pairs(self) -> int:
        """Number of all pairs."""
        return len(self.places) * (len(self.places) - 1) // 2


def rankings(data: StudyData) -> tuple[Ranking, ...]:
    """Return a ranking for each load and primary response with a compared pair; none for an unfinished study."""
    study = data.plan.study
    ranked = []
    for load in study.loads:
        for name in study.primary:
            rows = [
                row
                for row in data.verdicts
                if (row.load, row.response, row.family) == (load.label, name, BETWEEN)
                and row.verdict is not VerdictLabel.PROVISIONAL
            ]
            if any(row.verdict.standing != "stopped" for row in rows):
                ranked.append(Ranking(load.label, REGISTRY[name], _places(rows, REGISTRY[name])))
    return tuple(ranked)


def _places(rows: list[VerdictRow], response: Response) -> tuple[RankRange, ...]:
    higher, lower = directions(response.kind)
    if response.kind in ("level", "throughput"):  # higher is better
        higher, lower = lower, higher
    values: dict[str, float | None] = {}
    for row in rows:
        values |= {row.baseline: row.baseline_value, row.treatment: row.treatment_value}
    better = [(row.baseline, row.treatment) for row in rows if row.verdict == higher]
    better += [(row.treatment, row.baseline) for row in rows if row.verdict == lower]
    places = []
    for name, value in values.items():
        wins = tuple(loser for winner, loser in better if winner == name)
        losses = tuple(winner for winner, loser in better if loser == name)
        places.append(RankRange(name, value, 1 + len(losses), len(values) - len(wins), wins, losses))
    return tuple(sorted(places, key=lambda place: (place.best + place.worst, place.best)))
