"""Which is better than which: a table a response and load, with the places that the pairs leave."""

from __future__ import annotations

from functools import partial

from meshtrial.inference.ranking import Ranking, RankRange, rankings
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, valued

_NOTE = (
    "Every pair was compared with the same exact test, and all pairs of a table are corrected together. A place is "
    "bounded by what was shown: one behind each that is better, one before each that is worse. Where nothing was shown "
    "places stay open; treatments that share places were not shown to be alike."
)


def ranks(data: StudyData) -> Fragment:
    """A table for each primary response and load of a study that compares its treatments with each other."""
    found = rankings(data)
    if not found:
        return paragraph("This study declared no contrasts between its treatments, or has no verdicts of them yet.")
    level = wording.declared_percent(1 - data.plan.study.alpha)
    note = f"{_NOTE} All places of a table hold at once in at least {level} of such studies."
    return join(*(_table(data, one, note if one is found[-1] else "").fragment() for one in found))


def places_line(data: StudyData, load: str, spoken: str = "") -> list[Fragment]:
    """The places by the first primary response, or the one that is spoken of; nothing where there are none."""
    ranking = next((one for one in rankings(data) if one.load == load and spoken in ("", one.response.name)), None)
    if ranking is None:
        return []
    groups: dict[str, list[str]] = {}
    for place in ranking.places:
        groups.setdefault(place.places, []).append(place.treatment)
    listed = [(places, wording.listing(names)) for places, names in groups.items()]
    return [Fragment("sentences.places", wording.short_label(ranking.response.name), listed, _shown(ranking))]


def _shown(ranking: Ranking) -> str:
    return f"{ranking.shown} of {ranking.pairs} pairs shown to differ"


def _table(data: StudyData, ranking: Ranking, note: str) -> Table:
    def names(found: tuple[str, ...]) -> str:
        if len(found) == len(ranking.places) - 1 > 1:
            return "all others"
        return wording.listing(list(found)) or "–"

    read = partial(wording.in_unit, ranking.response)
    columns: list[Column[RankRange]] = [
        Column("treatment", lambda place: place.treatment),
        Column("places", lambda place: Cell(place.places, place.best + place.worst), middle=True),
        Column("typical run", lambda place: valued(place.value, read), numeric=True),
        Column("shown to be better than", lambda place: names(place.better_than)),
        Column("shown to be worse than", lambda place: names(place.worse_than)),
    ]
    where = frames.at(data, ranking.load)
    caption = f"Which is better than which by {wording.short_label(ranking.response.name)}{where}"
    return Table.of(f"{caption}: {_shown(ranking)}", columns, ranking.places, note)
