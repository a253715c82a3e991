"""Several studies of one question: each study's estimate, the differences between studies, and the effect over days."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from meshtrial import stats
from meshtrial.inference.between import Between
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, join, paragraph, ranged
from meshtrial.vocabulary import VerdictLabel

_MOST_COLUMNS = 4  # more studies than this have no column each
CAVEAT = (
    "Studies of different days share no block. A difference between them may come from the day (machine, neighbours, "
    "cluster) or from the version, and no test on these records can separate the two. To compare versions, make them "
    "treatments of one study."
)
_NOTE = (
    "Each study: mean over its blocks (for a ratio, of logarithms). Against the first: exact rank test on the blocks' "
    "values, corrected by Benjamini-Hochberg; it includes only the noise inside the studies. Across days: random "
    "effects (Paule and Mandel), with an interval by Student's t over the studies. It includes the noise of days, so "
    "two days give a wide one, and it is never narrower than the noise inside the studies makes it. Spread: standard "
    "deviation between the studies beyond their own noise, with its interval (two days do not give one). Predicted: "
    "where the estimate of another study like these will be, from three studies on, in brackets the added amount. The "
    "A/A twin's spread shows the effect of days alone."
)


def between(studies: Sequence[StudyData], contrasts: Sequence[Between], differ: Sequence[str]) -> Fragment:
    """List the studies and the differences between their plans, and compare their effects in a table with a caveat.

    Parameters
    ----------
    studies : sequence of StudyData
    contrasts : sequence of Between
    differ : sequence of str
        From :func:`meshtrial.inference.between.differences`.
    """
    names = [f"{frames.letter(i)}: {_name(data)}" for i, data in enumerate(studies)]
    lines = [f"Differs between them: {line}" for line in differ] or ["All have the same parameters and versions."]
    lines += [
        f"{frames.letter(i)} is not finished: its results here are preliminary, and are no verdict."
        for i, data in enumerate(studies)
        if any(row.verdict is VerdictLabel.PROVISIONAL for row in data.verdicts)
    ]
    lines += _scales(contrasts)
    return join(bullets(names), bullets(lines), _table(len(studies), contrasts).fragment(), paragraph(CAVEAT))


def _scales(contrasts: Sequence[Between]) -> list[str]:
    """Return on which scale, ratios or added amounts, the studies agree better; nothing if no effect is a ratio."""
    pairs = [(one, both) for one in contrasts if one.added for both in zip(one.against_first, one.added, strict=True)]
    if not pairs:
        return []
    by_ratio, by_amount = (sum(one.word(both[i]) == "differ" for one, both in pairs) for i in (0, 1))
    compared = (
        f"Against the first, ratios differ in {by_ratio} and added amounts in {by_amount} of {len(pairs)} comparisons"
    )
    if by_ratio > by_amount:
        hint = "the baseline changed between sessions while the added amounts changed less"
    elif by_amount > by_ratio:
        hint = "changes between sessions affected the baseline and the treatments in proportion"
    else:
        hint = "neither scale agrees better between sessions"
    return [f"{compared}. These counts are not a test; they suggest that {hint}."]


def _name(data: StudyData) -> str:
    start = data.began_unix_s
    when = f"{datetime.datetime.fromtimestamp(start, datetime.UTC):%Y-%m-%d %H:%M} UTC" if start else "no run"
    return f"{data.plan.study.name}, {when}, {data.path.name}, plan {data.plan.sha256[:12]}"


def _table(studies: int, contrasts: Sequence[Between]) -> Table:
    columns: list[Column[Between]] = [
        Column("contrast", _contrast),
        Column("response", lambda one: wording.short_label(one.response), wide=True),
    ]
    if studies > _MOST_COLUMNS:
        quantiles = (("smallest", 0.0), ("median", 0.5), ("largest", 1.0))
        columns += [Column(name, partial(_quantile, q), numeric=True) for name, q in quantiles]
        columns.append(Column("against the first", _tally))
    else:
        columns += [Column(frames.letter(i), partial(_of_study, i), numeric=True) for i in range(studies)]
        columns.append(Column("against the first", lambda one: _against_each(one, one.against_first)))
        columns.append(Column("added, against the first", lambda one: _against_each(one, one.added) or None))
    columns += [Column("across days", _over_days, numeric=True), Column("spread", _spread, numeric=True)]
    columns.append(Column("predicted for another", _prediction, numeric=True))
    several = len({one.load for one in contrasts}) > 1
    groups = [one.load for one in contrasts] if several else ()
    return Table.from_rows("Study against study", columns, contrasts, _NOTE, groups=groups)


def _contrast(one: Between) -> Cell:
    if not one.baseline:
        return Cell(f"{one.treatment}, its value")
    return Cell(one.treatment, note=f"against {one.baseline}")


def _quantile(q: float, one: Between) -> Cell:
    means = np.array([effect.mean for effect in one.effects])
    value = float(np.quantile(np.exp(means) if one.scale == "ratio" else means, q))
    return Cell(_amount(one, value), value)


def _tally(one: Between) -> Cell:
    words = Counter(one.word(result) for result in one.against_first)
    return Cell(", ".join(f"{number} {word}" for word, number in words.most_common()), note=f"of {words.total()}")


def _of_study(place: int, one: Between) -> Cell | None:
    effect = next((effect for effect in one.effects if effect.study == place), None)
    if effect is None:
        return None
    mean = float(np.exp(effect.mean)) if one.scale == "ratio" else effect.mean
    return Cell(_amount(one, mean), mean, note=f"{len(effect.values)} blocks")


def _against_each(one: Between, results: Sequence[stats.ContrastResult]) -> str:
    return "; ".join(_against(one, result) for result in results)


def _against(one: Between, result: stats.ContrastResult) -> str:
    name = frames.letter(int(result.treatment))
    c = result.comparison
    if c is None:
        return f"{name}: not compared"
    effect = c.effect
    if c.scale == "ratio":
        size = f"{wording.change(effect.estimate, effect.high)} [{wording.change_interval(effect.low, effect.high)}]"
    else:
        size = wording.in_unit(one.response, effect.estimate, sign=True)
        size += f" [{wording.interval_in_unit(one.response, effect.low, effect.high)}]"
    return f"{name}: {one.word(result)}, {size}"


def _over_days(one: Between) -> Cell | None:
    over = one.over_days
    if over is None:
        return None
    return ranged(over.estimate, over.low, over.high, partial(_amount, one))


def _spread(one: Between) -> Cell | None:
    if one.over_days is None:
        return None
    over = one.over_days
    if over.sd_low is None or over.sd_high is None:
        return Cell("not estimable", over.between_sd)

    def text(spread: float) -> str:
        return wording.percent(spread, 2) if one.scale == "ratio" else wording.in_unit(one.response, spread)

    return ranged(over.between_sd, over.sd_low, over.sd_high, text)


def _prediction(one: Between) -> Cell | None:
    """Return the prediction interval of a next study's estimate; for a ratio, the note is that of the added amount."""
    over, added = one.over_days, one.added_over_days
    if over is None or over.next_low is None or over.next_high is None:
        return None
    if one.baseline and one.scale == "ratio":
        note = "" if added is None else wording.interval_in_unit(one.response, added.next_low, added.next_high)
        return Cell(wording.change_interval(over.next_low, over.next_high), note=note)
    return Cell(" to ".join(_amount(one, end) for end in (over.next_low, over.next_high)))


def _amount(one: Between, value: float) -> str:
    if not one.baseline or one.scale == "difference":
        return wording.in_unit(one.response, value, sign=bool(one.baseline))
    return wording.change(value, value)


_LEVELS_NOTE = (
    "A level changes where the largest standardised sum over all splits of the series is too large by a permutation "
    "test. If nothing changed, at most 5 % of responses at a load would have a mark, for any number of contrasts. A "
    "change that the A/A twin or the baseline's value shares comes from the machine. "
    "Studies that wander are marked too often."
)


def levels(
    studies: Sequence[StudyData], contrasts: Sequence[Between], changes: Sequence[Sequence[stats.LevelChange]]
) -> Fragment:
    """Return where each series of studies changed level, with the levels before and after, or what that would take.

    Parameters
    ----------
    studies : sequence of StudyData
        In the order of time.
    contrasts : sequence of Between
    changes : sequence of sequences of LevelChange
        From :func:`meshtrial.inference.history.levels`, one for each contrast.
    """
    widest = max(Counter((one.load, one.response) for one in contrasts).values())
    fewest = stats.fewest_for_change(widest)
    if len(studies) < fewest:
        return paragraph(f"A change of level can be tested from {fewest} studies on; there are {len(studies)}.")
    rows = [(one, called) for one, called in zip(contrasts, changes, strict=True) if called]
    if not rows:
        return paragraph(f"No change of level was called in {len(contrasts)} series of up to {len(studies)} studies.")
    columns: list[Column[tuple[Between, Sequence[stats.LevelChange]]]] = [
        Column("contrast", lambda row: _contrast(row[0])),
        Column("response", lambda row: wording.short_label(row[0].response), wide=True),
        Column("studies", lambda row: len(row[0].effects), numeric=True),
        Column("changes of level", lambda row: _changes(studies, *row), wide=True),
    ]
    several = len({one.load for one in contrasts}) > 1
    groups = [one.load for one, _ in rows] if several else ()
    note = f"{_LEVELS_NOTE} No change was called in the other series, {len(contrasts) - len(rows)} of {len(contrasts)}."
    return Table.from_rows("Changes of level", columns, rows, note, groups=groups, show_caption=False).fragment()


def _changes(studies: Sequence[StudyData], one: Between, changes: Sequence[stats.LevelChange]) -> str:
    def level(mean: float) -> str:
        return _amount(one, float(np.exp(mean)) if one.scale == "ratio" else mean)

    return "; ".join(
        f"from {level(change.before)} to {level(change.after)} with {_name(studies[one.effects[change.index].study])} "
        f"({wording.equation('p', change.p_adjusted)})"
        for change in changes
    )
