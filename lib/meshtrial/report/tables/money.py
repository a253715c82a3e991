"""What a treatment costs in money over the baseline, with intervals, at a user's prices: `meshtrial cost` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.inference.extrapolated import MonthAtSize, at_size
from meshtrial.inference.money import Amount, CostEstimate, Prices, bills
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph, ranged
from meshtrial.stats.growth import Slope


def money(data: StudyData, core_hour: float, gib_hour: float, currency: str = "") -> Fragment:
    """One row per treatment and load: a month, the control plane's month, a million requests.

    Parameters
    ----------
    data : StudyData
    core_hour, gib_hour : float
        What an hour of a core and of a GiB costs.
    currency : str, optional
        Shown beside the amounts.

    Raises
    ------
    UsageError
        For prices below 0, or none at all.
    """
    prices = Prices(core_hour, gib_hour)
    costs = bills(data, prices)
    if not costs:
        return paragraph("No run that takes part in the inference has its CPU and memory recorded.")
    columns: list[Column[CostEstimate]] = [
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column("a month at this load", lambda one: _amount(one.month, currency), numeric=True),
        Column("control plane, a month", lambda one: _amount(one.control_plane, currency), numeric=True),
        Column("CPU for a million requests", lambda one: _amount(one.million, currency), numeric=True),
        Column("blocks", lambda one: one.blocks, numeric=True),
    ]
    sure = wording.percent(min(one.confidence for one in costs), 3)
    note = (
        f"Over the baseline, at {wording.plain(core_hour)} a core-hour and {wording.plain(gib_hour)} a GiB-hour, 730 "
        f"hours a month; with each amount its interval over blocks at {sure} confidence, not corrected. A month is "
        "that of the app and its data plane at the measured rate: CPU goes with the requests, memory does not, so it "
        "cannot be scaled to other rates. The control plane is apart: it serves more than this application."
    )
    return Table.of("Cost in money", columns, costs, note, groups=[one.load for one in costs]).fragment()


def money_at(data: StudyData, core_hour: float, gib_hour: float, pods: int, currency: str = "") -> Fragment:
    """What treatments of a study that scales out cost more a month at a number of pods.

    Parameters
    ----------
    data : StudyData
    core_hour, gib_hour : float
        What an hour of a core and of a GiB costs.
    pods : int
        Pods of all tiers together.
    currency : str, optional
        Shown beside the amounts.

    Raises
    ------
    UsageError
        For prices below 0, a study of one size, or a size too far beyond the measured ones.
    """
    costs = at_size(data, Prices(core_hour, gib_hour), pods)
    if not costs:
        return paragraph("No treatment has its CPU and memory recorded at two sizes, in two blocks.")
    columns: list[Column[MonthAtSize]] = [
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column(f"a month at {wording.count(pods)} pods", lambda one: _amount(one.month, currency), numeric=True),
        Column("100 pods more, a month", lambda one: _amount(one.hundred, currency), numeric=True),
        Column("blocks", lambda one: one.blocks, numeric=True),
    ]
    prices = f"at {wording.plain(core_hour)} a core-hour and {wording.plain(gib_hour)} a GiB-hour, 730 hours a month"
    note = f"Over the baseline, {prices}. {_limits(costs)}"
    return Table.of("Cost in money by size", columns, costs, note).fragment()


def _limits(costs: Sequence[MonthAtSize]) -> str:
    one = costs[0]
    largest = one.sizes[-1]
    rate = (
        "a rate that grows with the pods" if one.rps is None else f"{wording.plain(one.rps)} requests a second in all"
    )
    sure = wording.percent(min(of.hundred.confidence for of in costs), 3)
    said = [
        f"App and whole mesh, at {rate}: in each block a straight line through {one.sizes[0]} to {largest} pods, and "
        f"its interval over blocks at {sure} confidence ({one.hundred.method})."
    ]
    if one.pods > largest:
        times = f"{wording.count(one.pods)} is {wording.plain(round(one.pods / largest, 1))} times the largest size"
        said.append(f"{times} that was measured.")
    if straight := [of.treatment for of in costs if of.bounded]:
        said.append(
            f"Of {wording.listing(straight)} curvature is shown to change the month by less than a tenth; the interval "
            "is widened by what of it stays open."
        )
    if envelope := [of.treatment for of in costs if not of.bounded and of.month]:
        said.append(
            f"Of {wording.listing(envelope)} the measured costs may bend by more: the interval is the envelope of "
            "straight lines, parabolas and power laws."
        )
    if none := [of.treatment for of in costs if of.month is None]:
        said.append(
            f"Of {wording.listing(none)} the measured costs may bend, and say nothing of a size so far beyond: measure "
            "larger sizes, or more blocks."
        )
    said.append("What runs once a node is in it as on the nodes of this study, and does not grow with the pods here.")
    return " ".join(said)


def _amount(amount: Amount | Slope | None, currency: str) -> Cell | None:
    def shown(value: float) -> str:
        return f"{wording.signed(value, most=4)}{wording.NBSP}{currency}".strip()

    return None if amount is None else ranged(amount.estimate, amount.low, amount.high, shown)
