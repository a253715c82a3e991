"""What a treatment costs to run: cores and memory per 1000 requests a second, and in money at prices that a user gives.

CPU follows the requests, so cores per 1000 rps carry over to other rates near this one. Memory hardly
does: it is there at any rate, so the memory per 1000 rps is that of this very rate and falls as the rate
rises. Medians over runs; the verdicts on the same numbers stand in the other tables. Money is what is added to the
baseline's, with intervals: what ``meshtrial cost`` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

from meshtrial.design.responses import PARTS, PATH_ROLES
from meshtrial.inference.extrapolated import MonthAtSize, at_size
from meshtrial.inference.money import Amount, Bill, Prices, bills
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, ColumnOf, Fragment, Table, join, paragraph
from meshtrial.stats.growth import Slope

PER_RPS = 1000.0
_GIB = 2.0**30
_TOTAL = "path_cpu_s_per_request"
_RATE = f"{wording.count(int(PER_RPS))}{wording.NBSP}rps"
_NOTE = (
    "Cores that 1 000 requests a second keep busy, and PSS of the data plane and the policy server: medians over the "
    "included runs, without the load generator. CPU goes with the requests; memory does not, so the memory per "
    "1 000 rps belongs to this rate alone and falls where more requests share the same proxies."
)


def cost(data: StudyData) -> Fragment:
    """Cores and GiB per 1000 rps by treatment, a table a load."""
    tables = [table for load in frames.loads(data) if (table := _table(data, load)) is not None]
    if not tables:
        return paragraph("No run that takes part in the inference has its CPU recorded.")
    return join(*(table.fragment() for table in tables))


def _table(data: StudyData, load: str) -> Table | None:
    runs = [run for run in data.included_runs() if run.load == load and _TOTAL in run.responses]
    treatments = frames.order(data, [run.treatment for run in runs])
    if not treatments:
        return None
    of = {treatment: [run for run in runs if run.treatment == treatment] for treatment in treatments}
    parts = [role for role in PATH_ROLES if any(_cores(mine, role) is not None for mine in of.values())]
    columns: list[ColumnOf[str]] = [
        ColumnOf("treatment", str),
        ColumnOf("achieved / rps", lambda name: wording.number(_median(of[name], "achieved_rps")), numeric=True),
        *(
            ColumnOf(f"{PARTS[role].label} / cores per {_RATE}", partial(_part, of, role), numeric=True)
            for role in parts
        ),
        ColumnOf("together", lambda name: _shown(_per_rate(of[name], _TOTAL)), numeric=True),
        ColumnOf("over the baseline", lambda name: _over(of, data.plan.study.baseline.name, name), numeric=True),
        ColumnOf("added memory / GiB", lambda name: _shown(_memory(of[name])), numeric=True),
        ColumnOf(f"GiB per {_RATE}", lambda name: _shown(_memory_per_rate(of[name])), numeric=True),
    ]
    return Table.of(f"Cost{frames.at(data, load)}", columns, treatments, _NOTE)


def _shown(value: float | None) -> str:
    return wording.number(value, most=4)


def _part(of: Mapping[str, Sequence[RunRecord]], role: str, treatment: str) -> str:
    return _shown(_cores(of[treatment], role))


def _over(of: Mapping[str, Sequence[RunRecord]], baseline: str, treatment: str) -> str:
    total, base = (_per_rate(of.get(name, ()), _TOTAL) for name in (treatment, baseline))
    return "–" if treatment == baseline or total is None or base is None else wording.signed(total - base, most=4)


def _cores(runs: Sequence[RunRecord], role: str) -> float | None:
    return _per_rate(runs, f"{PARTS[role].key}_cpu_s_per_request")


def _memory(runs: Sequence[RunRecord]) -> float | None:
    """GiB of what the treatment adds: the data plane and the policy server."""
    found = [
        run.responses["data_plane_memory_bytes"] + run.responses.get("policy_memory_bytes", 0.0)
        for run in runs
        if "data_plane_memory_bytes" in run.responses
    ]
    return median(found) / _GIB if found else None


def _memory_per_rate(runs: Sequence[RunRecord]) -> float | None:
    memory, rate = _memory(runs), _median(runs, "achieved_rps")
    return memory / rate * PER_RPS if memory is not None and rate else None


def _median(runs: Sequence[RunRecord], name: str) -> float | None:
    found = [run.responses[name] for run in runs if name in run.responses]
    return median(found) if found else None


def _per_rate(runs: Sequence[RunRecord], name: str) -> float | None:
    value = _median(runs, name)
    return None if value is None else value * PER_RPS


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
        return paragraph("No run that takes part in the inference has its CPU and memory recorded.")
    columns: list[ColumnOf[Bill]] = [
        ColumnOf("treatment", lambda one: one.treatment),
        ColumnOf("against", lambda one: one.baseline),
        ColumnOf("a month at this load", lambda one: _amount(one.month, currency), numeric=True),
        ColumnOf("control plane, a month", lambda one: _amount(one.control_plane, currency), numeric=True),
        ColumnOf("CPU for a million requests", lambda one: _amount(one.million, currency), numeric=True),
        ColumnOf("blocks", lambda one: one.blocks, numeric=True),
    ]
    sure = wording.percent(min(one.confidence for one in found), 3)
    note = (
        f"Over the baseline, at {wording.plain(core_hour)} a core-hour and {wording.plain(gib_hour)} a GiB-hour, 730 "
        f"hours a month; with each amount its interval over blocks at {sure} confidence, not corrected. A month is "
        "that of the app and its data plane at the measured rate: CPU goes with the requests, memory does not, so it "
        "cannot be scaled to other rates. The control plane is apart: it serves more than this application."
    )
    return Table.of("Cost in money", columns, found, note, groups=[one.load for one in found]).fragment()


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
    found = at_size(data, Prices(core_hour, gib_hour), pods)
    if not found:
        return paragraph("No treatment has its CPU and memory recorded at two sizes, in two blocks.")
    columns: list[ColumnOf[MonthAtSize]] = [
        ColumnOf("treatment", lambda one: one.treatment),
        ColumnOf("against", lambda one: one.baseline),
        ColumnOf(f"a month at {wording.count(pods)} pods", lambda one: _amount(one.month, currency), numeric=True),
        ColumnOf("100 pods more, a month", lambda one: _amount(one.hundred, currency), numeric=True),
        ColumnOf("blocks", lambda one: one.blocks, numeric=True),
    ]
    prices = f"at {wording.plain(core_hour)} a core-hour and {wording.plain(gib_hour)} a GiB-hour, 730 hours a month"
    note = f"Over the baseline, {prices}. {_limits(found)}"
    return Table.of("Cost in money by size", columns, found, note).fragment()


def _limits(found: Sequence[MonthAtSize]) -> str:
    one = found[0]
    largest = one.sizes[-1]
    rate = (
        "a rate that grows with the pods" if one.rps is None else f"{wording.plain(one.rps)} requests a second in all"
    )
    sure = wording.percent(min(of.hundred.confidence for of in found), 3)
    said = [
        f"App and whole mesh, at {rate}: in each block a straight line through {one.sizes[0]} to {largest} pods, and "
        f"its interval over blocks at {sure} confidence ({one.hundred.method})."
    ]
    if one.pods > largest:
        times = f"{wording.count(one.pods)} is {wording.plain(round(one.pods / largest, 1))} times the largest size"
        said.append(f"{times} that was measured.")
    if straight := [of.treatment for of in found if of.bounded]:
        said.append(
            f"Of {wording.listing(straight)} curvature is shown to change the month by less than a tenth; the interval "
            "is widened by what of it stays open."
        )
    if envelope := [of.treatment for of in found if not of.bounded and of.month]:
        said.append(
            f"Of {wording.listing(envelope)} the measured costs may bend by more: the interval is the envelope of "
            "straight lines, parabolas and power laws."
        )
    if none := [of.treatment for of in found if of.month is None]:
        said.append(
            f"Of {wording.listing(none)} the measured costs may bend, and say nothing of a size so far beyond: measure "
            "larger sizes, or more blocks."
        )
    said.append("What runs once a node is in it as on the nodes of this study, and does not grow with the pods here.")
    return " ".join(said)


def _amount(amount: Amount | Slope | None, currency: str) -> Cell | None:
    def shown(value: float) -> str:
        return f"{wording.signed(value, most=4)}{wording.NBSP}{currency}".strip()

    if amount is None:
        return None
    return Cell(shown(amount.estimate), amount.estimate, note=f"{shown(amount.low)} to {shown(amount.high)}")
