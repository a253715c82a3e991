"""Several studies of one question: each study's estimate, the differences between studies, and the effect over days."""

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
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
        columns.append(Column("against the first", lambda one: _against(one, one.against_first)))
        columns.append(Column("added, against the first", lambda one: _against(one, one.added) or None))
    columns += [
        Column(
            "across days",
            lambda one: (over := one.over_days) and ranged(over.estimate, over.low, over.high, partial(_amount, one)),
            numeric=True,
        ),
        Column("spread", _spread, numeric=True),
        Column("predicted for another", _prediction, numeric=True),
    ]
    return Table.from_rows("Study against study", columns, contrasts, _NOTE, groups=_loads(contrasts, contrasts))


def _loads(contrasts: Sequence[Between], rows: Iterable[Between]) -> Sequence[str]:
    return [one.load for one in rows] if len({one.load for one in contrasts}) > 1 else ()


def _contrast(one: Between) -> Cell:
    if not one.baseline:
        return Cell(f"{one.treatment}, its value")
    return Cell(one.treatment, note=f"against {one.baseline}")


def _amount(one: Between, value: float) -> str:
    if not one.baseline or one.scale == "difference":
        return wording.in_unit(one.response, value, sign=bool(one.baseline))
    return wording.change(value, value)


def _unlogged(one: Between, mean: float) -> float:
    return float(np.exp(mean)) if one.scale == "ratio" else mean


def _quantile(q: float, one: Between) -> Cell:
    value = float(np.quantile([_unlogged(one, effect.mean) for effect in one.effects], q))
    return Cell(_amount(one, value), value)


def _of_study(place: int, one: Between) -> Cell | None:
    effect = next((effect for effect in one.effects if effect.study == place), None)
    if effect is None:
        return None
    mean = _unlogged(one, effect.mean)
    return Cell(_amount(one, mean), mean, note=f"{len(effect.values)} blocks")


def _tally(one: Between) -> Cell:
    words = Counter(one.word(result) for result in one.against_first)
    return Cell(", ".join(f"{number} {word}" for word, number in words.most_common()), note=f"of {words.total()}")


def _against(one: Between, results: Sequence[stats.ContrastResult]) -> str:
    texts = []
    for result in results:
        size = "not compared"
        if (c := result.comparison) is not None:
            low, high = c.effect.low, c.effect.high
            if c.scale == "ratio":
                size = f"{wording.change(c.effect.estimate, high)} [{wording.change_interval(low, high)}]"
            else:
                size = wording.in_unit(one.response, c.effect.estimate, sign=True)
                size += f" [{wording.interval_in_unit(one.response, low, high)}]"
            size = f"{one.word(result)}, {size}"
        texts.append(f"{frames.letter(int(result.treatment))}: {size}")
    return "; ".join(texts)


def _spread(one: Between) -> Cell | None:
    over = one.over_days
    if over is None:
        return None
    if over.sd_low is None or over.sd_high is None:
        return Cell("not estimable", over.between_sd)
    form = partial(wording.percent, digits=2) if one.scale == "ratio" else partial(wording.in_unit, one.response)
    return ranged(over.between_sd, over.sd_low, over.sd_high, form)


def _prediction(one: Between) -> Cell | None:
    """Return the prediction interval of a next study's estimate; for a ratio, the note is that of the added amount."""
    over, added = one.over_days, one.added_over_days
    if over is None or over.next_low is None or over.next_high is None:
        return None
    if one.baseline and one.scale == "ratio":
        note = "" if added is None else wording.interval_in_unit(one.response, added.next_low, added.next_high)
        return Cell(wording.change_interval(over.next_low, over.next_high), note=note)
    return Cell(" to ".join(_amount(one, end) for end in (over.next_low, over.next_high)))


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
        From :func:`meshtrial.inference.between.levels`, one for each contrast.
    """
    widest = max(Counter((one.load, one.response) for one in contrasts).values())
    fewest = stats.fewest_for_change(widest)
    if len(studies) < fewest:
        return paragraph(f"A change of level can be tested from {fewest} studies on; there are {len(studies)}.")
    rows = [(one, called) for one, called in zip(contrasts, changes, strict=True) if called]
    if not rows:
        return paragraph(f"No change of level was called in {len(contrasts)} series of up to {len(studies)} studies.")

    def text(row: tuple[Between, Sequence[stats.LevelChange]]) -> str:
        one, called = row
        return "; ".join(
            f"from {_amount(one, _unlogged(one, change.before))} to {_amount(one, _unlogged(one, change.after))} with "
            f"{_name(studies[one.effects[change.index].study])} ({wording.equation('p', change.p_adjusted)})"
            for change in called
        )

    columns: list[Column[tuple[Between, Sequence[stats.LevelChange]]]] = [
        Column("contrast", lambda row: _contrast(row[0])),
        Column("response", lambda row: wording.short_label(row[0].response), wide=True),
        Column("studies", lambda row: len(row[0].effects), numeric=True),
        Column("changes of level", text, wide=True),
    ]
    groups = _loads(contrasts, [one for one, _ in rows])
    note = f"{_LEVELS_NOTE} No change was called in the other series, {len(contrasts) - len(rows)} of {len(contrasts)}."
    return Table.from_rows("Changes of level", columns, rows, note, groups=groups, show_caption=False).fragment()
