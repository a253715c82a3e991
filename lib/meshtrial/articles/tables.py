"""What the notebooks ``published`` and ``best_of_n`` show: the printed numbers, and the simulated rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.figure import Figure as Canvas

from meshtrial.articles import published
from meshtrial.articles.claims import Claim, claims
from meshtrial.articles.discarding import PRINTED, SLOWER, RuleEffect
from meshtrial.articles.published import Needed, Settings, Single
from meshtrial.report import Figure, Fragment, wording
from meshtrial.report.figure import Columns
from meshtrial.report.figures.common import factor_axis
from meshtrial.report.markup import Cell, Column, Table, part, valued
from meshtrial.report.palette import HUES, INK
from meshtrial.report.sheet import Sheet
from meshtrial.stats.simulate import Order

# Beyond this a number of pairs only says: out of reach.
MOST = 1000
_NAMES = {"sequential": "one treatment after the other", "randomised": "in randomised blocks"}
_DIFFER = "identical, means differ by more than {}"
_NOTE = (
    "Welch's t test is asked of the runs that were kept, at 0.05; the exact signed-rank test of whole blocks, of which "
    "it needs six. The treatment that stalls does so in every fourth run, which then takes twice as long: its mean "
    "over many runs is 25 % above the other's."
)


def sources_table() -> Fragment:
    """Where every number was printed."""
    columns: list[Column[dict[str, Any]]] = [
        Column("file", lambda row: f"data/published/{row['file']}"),
        Column("source", lambda row: Cell(row["source"], html=part("link", row["url"], row["source"]))),
        Column("numbers", lambda row: row["numbers"], numeric=True),
        Column("of repeated runs", lambda row: row["of repeated runs"], numeric=True),
    ]
    return Table.of("Transcribed numbers", columns, published.sources().iter_rows(named=True)).fragment()


def needed_table(settings: Settings) -> Fragment:
    """How many pairs each repeated response would have needed."""
    margin = wording.declared_percent(settings.margin)
    columns: list[Column[Needed]] = [
        Column("response", lambda need: need.response),
        Column("change", lambda need: Cell(wording.change(need.ratio), need.ratio), numeric=True),
        Column("noise of a pair", lambda need: Cell(wording.percent(need.sd), need.sd), numeric=True),
        Column("pairs printed", lambda need: need.n, numeric=True),
        Column("for an effect as printed", lambda need: _pairs(need.for_estimate), numeric=True),
        Column(f"for an effect of {margin}", lambda need: _pairs(need.for_margin), numeric=True),
        Column(f"for equivalence within {margin}", lambda need: _pairs(need.for_equivalence), numeric=True),
    ]
    needs = published.needed(settings)
    note = (
        "Power 0.8, never fewer than the exact test's own floor. The noise is estimated from three pairs, so it may be "
        "off by a factor of two and more: read the numbers as orders of magnitude."
    )
    return Table.of("Pairs needed", columns, needs, note, groups=[need.experiment for need in needs]).fragment()


def _pairs(count: int | None) -> Cell | int | None:
    return Cell(f"more than {MOST}", count) if count is not None and count > MOST else count


def singles_table(*names: str) -> Fragment:
    """What these files, or all, print without a replicate, as arithmetic."""
    columns: list[Column[Single]] = [
        Column("response", lambda one: f"{one.response}, {one.treatment}"),
        Column(
            "baseline → treatment",
            lambda one: f"{one.baseline} {wording.plain(one.baseline_value)} → {wording.plain(one.value)} {one.unit}",
        ),
        Column("quotient", lambda one: Cell(f"{one.ratio:.2f}{wording.TIMES}", one.ratio), numeric=True),
        Column("what it is", lambda one: one.statistic),
        Column("can be tested", lambda _: "no: it has no replicate"),
    ]
    printed = published.singles(*names)
    note = "A quotient of two numbers without a spread: no interval, no p, no verdict belongs beside it."
    groups = [one.experiment for one in printed]
    return Table.of("Printed once, or as a mean", columns, printed, note, groups=groups).fragment()


def claims_table(settings: Settings) -> Fragment:
    """Which printed sentences stand."""
    columns: list[Column[Claim]] = [
        Column(
            "claim",
            lambda claim: Cell(f"“{claim.words}”" if claim.quoted else claim.words, note=claim.place),
            wide=True,
        ),
        Column("the printed numbers", lambda claim: claim.numbers, wide=True),
        Column("stands", lambda claim: claim.stands),
        Column("shown?", lambda claim: claim.inference, wide=True),
    ]
    return Table.of("Printed claims", columns, claims(settings)).fragment()


def outcome_table(effects: Sequence[RuleEffect]) -> Fragment:
    """What each rule does: winners where there is none, and estimates beside the truth."""
    columns: list[Column[RuleEffect]] = [
        Column("rule", lambda one: one.rule.label),
        *(Column(_DIFFER.format(wording.declared_percent(p)), partial(_winners, p), numeric=True) for p in PRINTED),
        Column("identical, called by Welch's t", lambda one: _share(one.called), numeric=True),
        Column("identical, called by the exact test", lambda one: _share(one.exact), numeric=True),
        Column("spread that is left", lambda one: _share(one.spread), numeric=True),
        Column(f"estimate, truth +{100 * SLOWER:.0f} %", lambda one: _change(one.slower), numeric=True),
        Column("estimate where it stalls, truth +25 %", lambda one: _change(one.stalls), numeric=True),
    ]
    return Table.of("Best of n", columns, effects, _NOTE, groups=[_NAMES[one.order] for one in effects]).fragment()


def outcome_figure(effects: Sequence[RuleEffect]) -> Figure:
    """Ratios of the means of identical treatments, a row a rule."""
    orders = list(dict.fromkeys(one.order for one in effects))
    caption = (
        "Ratio of the mean of one treatment to that of another that is identical to it, over many simulated "
        "comparisons, as a density with its quarters. The dotted line is where they are the same. Dropping "
        "runs makes the shapes hardly narrower, and the order of the runs matters more than the rule."
    )
    columns: Columns[RuleEffect] = {
        "order": lambda one: _NAMES[one.order],
        "rule": lambda one: one.rule.label,
        **{f"{100 * q:g} %": partial(_quantile, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)},
    }
    seen = "Ratios of the means of two identical treatments"
    return Figure.of(lambda sheet: _draw(effects, orders, sheet), effects, columns, seen, _says, caption)


def _quantile(q: float, one: RuleEffect) -> float:
    return float(np.quantile(one.identical, q))


def _says(one: RuleEffect) -> str:
    low, high = (_quantile(q, one) for q in (0.05, 0.95))
    return f"{one.rule.label}, {_NAMES[one.order]}: nine of ten ratios between {low:.2f} and {high:.2f}"


def _draw(effects: Sequence[RuleEffect], orders: Sequence[Order], sheet: Sheet) -> Canvas:
    figure, panels = sheet.panels([2.0] * len(orders), sharex=True)
    limits = [float(np.quantile(one.identical, q)) for one in effects for q in (0.02, 0.98)]
    for axes, order, colour in zip(panels, orders, HUES, strict=False):
        mine = [one for one in effects if one.order == order]
        values = pl.DataFrame(
            {
                "place": np.repeat(np.arange(len(mine)), [one.identical.size for one in mine]),
                "ratio": np.concatenate([one.identical for one in mine]),
            }
        )
        sns.violinplot(
            data=values.to_dict(as_series=False),  # seaborn 0.13.2 raises TypeError for a polars frame
            x="ratio",
            y="place",
            orient="h",
            inner="quart",
            cut=0,
            width=0.7,
            color=colour,
            fill=False,
            linewidth=1.2,
            ax=axes,
        )
        axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
        sheet.rows(axes, [one.rule.label for one in mine], [INK] * len(mine))
        axes.set_title(_NAMES[order], loc="left")
        axes.set_ylabel("")
        axes.set_xlabel("")
        factor_axis(axes, min(limits), max(limits), sheet.ticks)
    panels[-1].set_xlabel("ratio of the means of two identical treatments")
    return figure


def _winners(differing_by: float, one: RuleEffect) -> Cell | None:
    return _share(one.winners(differing_by))


def _share(value: float | None) -> Cell | None:
    return valued(value, wording.percent)


def _change(value: float) -> Cell:
    return Cell(wording.change(1 + value), value)
