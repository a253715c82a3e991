"""Several studies of one question: each one's estimate, what differs between them, and the effect over the days."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence

import numpy as np

from meshtrial import stats
from meshtrial.inference.between import Between, OverDays
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, join, paragraph

_EACH = 4  # studies that have a column of their own
CAVEAT = (
    "Studies of different days share no block: a difference between them may be the day (machine, neighbours, cluster) "
    "as well as the version, and no test on these records can tell which. Versions are told apart as treatments of one "
    "study."
)
_NOTE = (
    "Each study: mean over its blocks, of logarithms where it is a ratio. Against the first: exact rank test on the "
    "blocks' values, corrected by Benjamini and Hochberg, with the noise inside the studies alone. Over the days: "
    "random effects (Paule and Mandel), interval by Student's t over the studies, so that days count: two days make a "
    "wide one. Spread: standard deviation between the studies beyond their own noise; of the A/A twin it is what days "
    "do to nothing."
)


def between(studies: Sequence[StudyData], found: Sequence[Between], differ: Sequence[str]) -> Fragment:
    """A list of the studies, what was asked differently, a table, and what it cannot say.

    Parameters
    ----------
    studies : sequence of StudyData
    found : sequence of Between
    differ : sequence of str
        From :func:`meshtrial.inference.between.differences`.
    """
    listed = [f"{letter(i)}: {_named(data)}" for i, data in enumerate(studies)]
    parts = [Fragment(bullets(listed), "\n".join(listed))]
    said = [f"Differs between them: {line}" for line in differ] or ["The same parameters and versions in all of them."]
    parts.append(Fragment(bullets(said), "\n".join(["", *said, ""])))
    parts += [_table(studies, found).fragment(), Fragment(paragraph(CAVEAT), f"\n{CAVEAT}")]
    return join(*parts)


def letter(place: int) -> str:
    """What a study is called in the table: A, B, ... Z, then by number."""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def _named(data: StudyData) -> str:
    start = data.began_unix_s
    when = f"{datetime.datetime.fromtimestamp(start, datetime.UTC):%Y-%m-%d %H:%M} UTC" if start else "no run"
    return f"{data.plan.study.name}, {when}, {data.path.name}, plan {data.plan.sha256[:12]}"


def _table(studies: Sequence[StudyData], found: Sequence[Between]) -> Table:
    columns = [Column("contrast"), Column("response", wide=True)]
    many = len(studies) > _EACH
    shown = ["least", "middle", "most"] if many else [letter(i) for i in range(len(studies))]
    columns += [Column(name, numeric=True) for name in shown]
    columns += [Column("against the first"), Column("over the days", numeric=True), Column("spread", numeric=True)]
    several = len({one.load for one in found}) > 1
    rows = [_row(one, len(studies), many) for one in found]
    groups = [one.load for one in found] if several else ()
    return Table("Study against study", columns, rows, _NOTE, groups=groups)


def _row(one: Between, count: int, many: bool) -> list[Cell]:
    effects = {effect.study: effect for effect in one.effects}
    level = not one.baseline
    cells = [
        Cell(
            f"{one.treatment}, its level" if level else one.treatment, note="" if level else f"against {one.baseline}"
        ),
        Cell(wording.short_label(one.response)),
    ]
    if many:
        means = np.array([effect.mean for effect in one.effects])
        spread = np.quantile(np.exp(means) if one.scale == "ratio" else means, [0, 0.5, 1])
        said = Counter(one.word(result) for result in one.against_first)
        return [
            *cells,
            *(Cell(_shown(one, float(value)), float(value)) for value in spread),
            Cell(", ".join(f"{number} {word}" for word, number in said.most_common()), note=f"of {said.total()}"),
            *_over(one, one.over_days),
        ]
    for i in range(count):
        effect = effects.get(i)
        if effect is None:
            cells.append(Cell("–"))
            continue
        mean = float(np.exp(effect.mean)) if one.scale == "ratio" else effect.mean
        cells.append(Cell(_shown(one, mean), mean, note=f"{len(effect.values)} blocks"))
    cells.append(Cell("; ".join(_against(one, result) for result in one.against_first)))
    return [*cells, *_over(one, one.over_days)]


def _against(one: Between, result: stats.ContrastResult) -> str:
    name = letter(int(result.treatment))
    c = result.comparison
    if c is None:
        return f"{name}: not compared"
    if c.scale == "ratio":
        size = f"{wording.change(c.estimate, c.ci_high)} [{wording.change_interval(c.ci_low, c.ci_high)}]"
    else:
        size = wording.in_unit(one.response, c.difference, sign=True)
        size += f" [{wording.interval_in_unit(one.response, c.difference_low, c.difference_high)}]"
    return f"{name}: {one.word(result)}, {size}"


def _over(one: Between, over: OverDays | None) -> list[Cell]:
    if over is None:
        return [Cell("–"), Cell("–")]
    interval = f"{_shown(one, over.low)} to {_shown(one, over.high)}"
    spread = (
        wording.percent(over.between_sd, 2) if one.scale == "ratio" else wording.in_unit(one.response, over.between_sd)
    )
    return [Cell(_shown(one, over.estimate), over.estimate, note=interval), Cell(spread, over.between_sd)]


def _shown(one: Between, value: float) -> str:
    if not one.baseline or one.scale == "difference":
        return wording.in_unit(one.response, value, sign=bool(one.baseline))
    return wording.change(value, value)
