"""What treatments cost in money over the baseline, with intervals; at prices that the user gives."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.inference.extrapolated import AtSize, at_size
from meshtrial.inference.money import Amount, Prices, bills
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph


def money(data: StudyData, core_hour: float, gib_hour: float, currency: str = "") -> Fragment:
    """A row a treatment and load: a month, the control plane's month, a million requests.

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
    found = bills(data, prices)
    if not found:
        text = "No run that takes part in the inference has its CPU and memory recorded."
        return Fragment(paragraph(text), text)
    columns = [
        Column("treatment"),
        Column("against"),
        Column("a month at this load", numeric=True),
        Column("control plane, a month", numeric=True),
        Column("CPU for a million requests", numeric=True),
        Column("blocks", numeric=True),
    ]
    rows = [
        [
            Cell(one.treatment),
            Cell(one.baseline),
            _cell(one.month, currency),
            Cell("–") if one.control_plane is None else _cell(one.control_plane, currency),
            _cell(one.million, currency),
            Cell(str(one.blocks), one.blocks),
        ]
        for one in found
    ]
    sure = wording.percent(min(one.confidence for one in found), 3)
    note = (
        f"Over the baseline, at {wording.plain(core_hour)} a core-hour and {wording.plain(gib_hour)} a GiB-hour, 730 "
        f"hours a month; with each amount its interval over blocks at {sure} confidence, not corrected. A month is "
        "that of the app and its data plane at the measured rate: CPU goes with the requests, memory does not, so it "
        "cannot be scaled to other rates. The control plane is apart: it serves more than this application."
    )
    return Table("Cost in money", columns, rows, note, groups=[one.load for one in found]).fragment()


def money_at(data: StudyData, core_hour: float, gib_hour: float, pods: int, currency: str = "") -> Fragment:
    """What treatments of a study that scales out cost more a month at a number of pods, by a straight line.

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
    found = at_size(data, Prices(core_hour, gib_hour), pods)
    if not found:
        text = "No treatment has its CPU and memory recorded at two sizes, in two blocks."
        return Fragment(paragraph(text), text)
    columns = [
        Column("treatment"),
        Column("against"),
        Column(f"a month at {wording.count(pods)} pods", numeric=True),
        Column("100 pods more, a month", numeric=True),
        Column("blocks", numeric=True),
    ]
    rows = [
        [
            Cell(one.treatment),
            Cell(one.baseline),
            *(_cell(Amount(line.estimate, line.low, line.high), currency) for line in (one.month, one.hundred)),
            Cell(str(one.month.n), one.month.n),
        ]
        for one in found
    ]
    prices = f"at {wording.plain(core_hour)} a core-hour and {wording.plain(gib_hour)} a GiB-hour, 730 hours a month"
    return Table("Cost in money by size", columns, rows, f"Over the baseline, {prices}. {_limits(found)}").fragment()


def _limits(found: Sequence[AtSize]) -> str:
    one = found[0]
    largest = one.sizes[-1]
    sure = wording.percent(min(of.month.confidence for of in found), 3)
    rate = (
        "a rate that grows with the pods" if one.rps is None else f"{wording.plain(one.rps)} requests a second in all"
    )
    said = [
        f"App and whole mesh, at {rate}: in each block a straight line through {one.sizes[0]} to {largest} pods, and "
        f"its interval over blocks at {sure} confidence ({one.month.method})."
    ]
    if one.pods > largest:
        said.append(
            f"{wording.count(one.pods)} is {wording.plain(round(one.pods / largest, 1))} times the largest size that "
            "was measured: that the line goes on so far is an assumption, and no interval holds it."
        )
    bent = [of.treatment for of in found if of.bends]
    if bent:
        said.append(f"The measured costs of {wording.listing(bent)} bend: a straight line is wrong for them.")
    said.append("What runs once a node is in it as on the nodes of this study, and does not grow with the pods here.")
    return " ".join(said)


def _cell(amount: Amount, currency: str) -> Cell:
    def shown(value: float) -> str:
        return f"{wording.signed(value, most=4)}{wording.NBSP}{currency}".strip()

    return Cell(shown(amount.estimate), amount.estimate, note=f"{shown(amount.low)} to {shown(amount.high)}")
