"""What treatments cost in money over the baseline, with intervals; at prices that the user gives."""

from __future__ import annotations

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


def _cell(amount: Amount, currency: str) -> Cell:
    def shown(value: float) -> str:
        return f"{wording.signed(value, most=4)}{wording.NBSP}{currency}".strip()

    return Cell(shown(amount.estimate), amount.estimate, note=f"{shown(amount.low)} to {shown(amount.high)}")
