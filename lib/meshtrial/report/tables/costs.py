"""The cost of running a treatment: CPU and memory per rate, parts of a mesh, system calls, and money.

CPU is roughly proportional to requests, so cores per 1000 requests per second carry over to similar rates. Memory is
not: it hardly depends on the rate, so memory per 1000 requests per second falls as the rate rises. Tables of cost show
medians over runs; the verdicts on the same numbers are in the verdict tables.
"""

from collections.abc import Sequence
from functools import partial
from statistics import median

from meshtrial.design.responses import PARTS, PATH_ROLES
from meshtrial.errors import UsageError
from meshtrial.inference.decomposition import Decomposition, Piece, decompose
from meshtrial.inference.money import CostEstimate, MonthAtSize, Prices, at_size, bills
from meshtrial.inference.rows import Described
from meshtrial.inference.rows import described as by_treatment
from meshtrial.records.dataset import StudyData
from meshtrial.records.mechanism import READS, WRITES, ComponentCalls, Mechanism, read_mechanism
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, ranged, valued
from meshtrial.stats import RankInterval
from meshtrial.stats.growth import Slope

PER_RPS = 1000.0
_GIB = 2.0**30
_TOTAL = "path_cpu_s_per_request"
_RATE = f"{wording.count(int(PER_RPS))}{wording.NBSP}rps"
_MOST_CALLS = 4
_CALLS_NOTE = (
    "Counted after the runs by strace, on one new deployment of each treatment: numbers of calls, not times. One "
    "deployment has no replicate, so there is no interval and no verdict. Data that arrives together is read together, "
    "so the counts apply to this rate only. Context switches are from the same load without strace."
)
_COST_NOTE = (
    "Cores that 1 000 requests per second keep busy, and PSS of the data plane and the policy server: medians over the "
    "included runs, without the load generator. CPU is proportional to requests but memory is not, so memory per "
    "1 000 rps applies to this rate only, and falls if more requests share the same proxies."
)


def cost(data: StudyData) -> Fragment:
    """Tabulate cores and GiB per 1000 rps by treatment, one table per load."""
    runs = [run for run in data.included_runs() if _TOTAL in run.responses]
    if not runs:
        return paragraph("No run used in the inference has its CPU recorded.")
    at_loads = ((load, [run for run in runs if run.load == load]) for load in frames.loads(data))
    return join(*(_cost_table(data, load, at_load).fragment() for load, at_load in at_loads if at_load))


def _cost_table(data: StudyData, load: str, runs: Sequence[RunRecord]) -> Table:
    treatments = frames.order(data, [run.treatment for run in runs])
    medians = {name: _medians([run for run in runs if run.treatment == name]) for name in treatments}
    parts = {role: f"{PARTS[role].key}_cpu_s_per_request" for role in PATH_ROLES}
    baseline = data.plan.study.baseline.name

    def per_rate(response: str, name: str) -> str:
        value = medians[name].get(response)
        return wording.number(None if value is None else value * PER_RPS, most=4)

    def above_baseline(name: str) -> str:
        if name == baseline or baseline not in medians:
            return "–"
        return wording.signed((medians[name][_TOTAL] - medians[baseline][_TOTAL]) * PER_RPS, most=4)

    columns: list[Column[str]] = [
        Column("treatment", str),
        Column("achieved / rps", lambda name: wording.number(medians[name].get("achieved_rps")), numeric=True),
        *(
            Column(f"{PARTS[role].label} / cores per {_RATE}", partial(per_rate, response), numeric=True)
            for role, response in parts.items()
            if any(response in known for known in medians.values())
        ),
        Column("all parts", partial(per_rate, _TOTAL), numeric=True),
        Column("above the baseline", above_baseline, numeric=True),
        Column("added memory / GiB", lambda name: wording.number(medians[name].get("memory"), most=4), numeric=True),
        Column(f"added GiB per {_RATE}", partial(per_rate, "memory per request"), numeric=True),
    ]
    return Table.from_rows(f"Cost{frames.at(data, load)}", columns, treatments, _COST_NOTE)


def _medians(runs: Sequence[RunRecord]) -> dict[str, float]:
    """Return the median of each response, and of the GiB that the treatment adds: data plane and policy server."""
    names = {name for run in runs for name in run.responses}
    found = {name: median(run.responses[name] for run in runs if name in run.responses) for name in names}
    memory = [
        run.responses["data_plane_memory_bytes"] + run.responses.get("policy_memory_bytes", 0.0)
        for run in runs
        if "data_plane_memory_bytes" in run.responses
    ]
    if memory:
        found["memory"] = median(memory) / _GIB
        if rate := found.get("achieved_rps"):
            found["memory per request"] = found["memory"] / rate
    return found


def described(data: StudyData) -> Fragment:
    """Tabulate responses of parts that only some treatments have, one table per load."""
    found = by_treatment(data)
    loads = dict.fromkeys(one.load for one in found)
    return join(*(_mesh_only_table(data, load, [one for one in found if one.load == load]) for load in loads))


def _mesh_only_table(data: StudyData, load: str, found: list[Described]) -> Fragment:
    cells = {
        (one.treatment, one.response.name): ranged(
            one.median, one.low, one.high, partial(wording.in_unit, one.response)
        )
        for one in found
    }

    def value(response: str, treatment: str) -> Cell | None:
        return cells.get((treatment, response))

    responses = dict.fromkeys(one.response.name for one in found)
    columns: list[Column[str]] = [
        Column("treatment", str),
        *(Column(wording.short_label(name), partial(value, name), numeric=True) for name in responses),
    ]
    note = (
        f"{data.plan.study.baseline.name} has no such part, so there is nothing to compare with. Medians over the "
        "included runs; below them, intervals of the median by order statistics (confidence at least "
        f"{wording.percent(min(one.confidence for one in found))})."
    )
    names = frames.order(data, [one.treatment for one in found])
    title = f"Parts that only a mesh has{frames.at(data, load)}"
    return Table.from_rows(title, columns, names, note).fragment()


def mechanism(data: StudyData) -> Fragment:
    """Tabulate system calls per request by treatment and component; nothing if the study did not count them."""
    mechanisms = read_mechanism(data.path)
    if not mechanisms:
        return join()

    def most_frequent(row: tuple[Mechanism, ComponentCalls]) -> str:
        ranked = sorted(row[1].calls.items(), key=lambda item: (-item[1], item[0]))[:_MOST_CALLS]
        return ", ".join(f"{name} {wording.number(count / row[0].traced)}" for name, count in ranked)

    columns: list[Column[tuple[Mechanism, ComponentCalls]]] = [
        Column("component", lambda row: row[1].component),
        Column("system calls per request", lambda row: sum(row[1].calls.values()) / row[0].traced, numeric=True),
        Column("reads per request", lambda row: row[1].of(READS) / row[0].traced, numeric=True),
        Column("writes per request", lambda row: row[1].of(WRITES) / row[0].traced, numeric=True),
        Column(
            "context switches per request",
            lambda row: None if row[1].switches is None else row[1].switches / row[0].untraced,
            numeric=True,
        ),
        Column("most frequent calls, per request", most_frequent, wide=True),
    ]
    rows = [(one, component) for one in mechanisms for component in one.components]
    groups = [one.treatment for one, _ in rows]
    title = f"System calls at {mechanisms[0].load}"
    return Table.from_rows(title, columns, rows, _CALLS_NOTE, groups=groups).fragment()


_PARTS_NOTE = (
    "Each part was measured by itself, the whole with everything at once. Parts and their sum are differences within a "
    "block. Each estimate is a median of its own, so estimates of parts need not add up exactly. A remainder above "
    "zero means that together the parts cost more than one by one, below zero that they cost less. Intervals and p are "
    "not corrected; the verdicts on the same contrasts are above."
)


def decomposition(data: StudyData) -> Fragment:
    """Tabulate the parts of a sidecar's cost for each primary response: parts, sum, whole and remainder."""
    tables = []
    for response in data.plan.study.primary:
        try:
            tables.append(_parts_table(decompose(data, response), data.plan.study.alpha).fragment())
        except UsageError as error:
            tables.append(paragraph(f"No decomposition: {error}."))
    return join(*tables)


def _parts_table(result: Decomposition, alpha: float) -> Table:
    def text(value: float) -> str:
        return wording.in_unit(result.response, value, sign=True)

    def share(piece: Piece) -> Cell | None:
        whole = result.whole.estimate
        return valued(piece.estimate / whole if whole > 0 else None, partial(wording.percent, digits=2))

    columns: list[Column[Piece]] = [
        Column("part", lambda piece: Cell(piece.name, note=piece.contrast.treatment if piece.contrast else "")),
        Column("against", lambda piece: piece.contrast.baseline if piece.contrast else None),
        Column("adds", lambda piece: Cell(text(piece.estimate), piece.estimate), numeric=True),
        Column(
            f"interval, {wording.percent(result.together.confidence, 3)}",
            lambda piece: f"{text(piece.low)} to {text(piece.high)}",
            numeric=True,
        ),
        Column("share of the whole", share, numeric=True),
        Column("p", lambda piece: Cell(wording.probability(piece.p), piece.p), numeric=True),
    ]
    note = _PARTS_NOTE
    if result.margin is not None and result.p_adds_up is not None:
        margin, p = wording.margin_text(result.response, result.margin), wording.probability(result.p_adds_up)
        within = f"{margin} of the baseline (p = {p})."
        if result.p_adds_up <= alpha:
            note = f"The parts add up: the remainder is shown to lie within {within} {note}"
        else:
            note = f"It is not shown that the parts add up: the remainder may lie beyond {within} {note}"
    pieces = [*result.parts, result.together, result.whole, result.remainder]
    caption = f"Parts of {wording.short_label(result.response)}, {result.blocks} blocks"
    return Table.from_rows(caption, columns, pieces, note)


def money(data: StudyData, core_hour: float, gib_hour: float, currency: str = "") -> Fragment:
    """Tabulate costs at the user's prices per treatment and load: a month, its control plane, a million requests.

    Parameters
    ----------
    data : StudyData
    core_hour, gib_hour : float
        Prices of a core and of a GiB for an hour.
    currency : str, optional
        Shown beside the amounts.

    Raises
    ------
    UsageError
        If a price is below 0, or all are 0.
    """
    prices = Prices(core_hour, gib_hour)
    costs = bills(data, prices)
    if not costs:
        return paragraph("No run used in the inference has its CPU and memory recorded.")
    columns: list[Column[CostEstimate]] = [
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column("cost per month at this load", lambda one: _amount(one.month, currency), numeric=True),
        Column("control plane, cost per month", lambda one: _amount(one.control_plane, currency), numeric=True),
        Column("CPU cost per million requests", lambda one: _amount(one.million, currency), numeric=True),
        Column("blocks", lambda one: one.blocks, numeric=True),
    ]
    confidence = wording.percent(min(one.confidence for one in costs), 3)
    note = (
        f"Cost over the baseline, {_prices_text(core_hour, gib_hour)}. Each amount has its interval over blocks at "
        f"{confidence} confidence, not corrected. A month is that of the app and its data plane at the measured rate. "
        "CPU is proportional to requests but memory is not, so the amounts cannot be scaled to other rates. The "
        "control plane is separate, because it serves more than this application."
    )
    return Table.from_rows("Cost in money", columns, costs, note, groups=[one.load for one in costs]).fragment()


def _prices_text(core_hour: float, gib_hour: float) -> str:
    prices = f"{wording.plain(core_hour)} per core-hour and {wording.plain(gib_hour)} per GiB-hour"
    return f"at {prices}, 730 hours per month"


def money_at(data: StudyData, core_hour: float, gib_hour: float, pods: int, currency: str = "") -> Fragment:
    """Tabulate the monthly cost of treatments over the baseline at a number of pods, for a study that scales out.

    Parameters
    ----------
    data : StudyData
    core_hour, gib_hour : float
        Prices of a core and of a GiB for an hour.
    pods : int
        Pods of all tiers together.
    currency : str, optional
        Shown beside the amounts.

    Raises
    ------
    UsageError
        If a price is below 0, the study has one size, or the size is too far beyond the measured ones.
    """
    costs = at_size(data, Prices(core_hour, gib_hour), pods)
    if not costs:
        return paragraph("No treatment has its CPU and memory recorded at two sizes in two blocks.")
    columns: list[Column[MonthAtSize]] = [
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column(f"cost per month at {wording.count(pods)} pods", lambda one: _amount(one.month, currency), numeric=True),
        Column("cost of 100 more pods per month", lambda one: _amount(one.hundred, currency), numeric=True),
        Column("blocks", lambda one: one.blocks, numeric=True),
    ]
    note = f"Cost over the baseline, {_prices_text(core_hour, gib_hour)}. {_extrapolation(costs)}"
    return Table.from_rows("Cost in money by size", columns, costs, note).fragment()


def _extrapolation(costs: Sequence[MonthAtSize]) -> str:
    one = costs[0]
    largest = one.sizes[-1]
    rate = (
        "a rate that grows with the pods" if one.rps is None else f"{wording.plain(one.rps)} requests per second in all"
    )
    confidence = wording.percent(min(cost.hundred.confidence for cost in costs), 3)
    text = (
        f"App and whole mesh, at {rate}: in each block a straight line through {one.sizes[0]} to {largest} pods, and "
        f"its interval over blocks at {confidence} confidence ({one.hundred.method})."
    )
    if one.pods > largest:
        times = wording.plain(round(one.pods / largest, 1))
        text += f" {wording.count(one.pods)} pods are {times} times the largest measured size."
    limits = {
        "curvature is shown to change the month by less than a tenth; the interval is widened by the curvature that "
        "remains possible.": [cost for cost in costs if cost.bounded],
        "the measured costs may curve more: the interval is the envelope of straight lines, parabolas and power "
        "laws.": [cost for cost in costs if not cost.bounded and cost.month],
        "the measured costs may curve too much to extrapolate to this size: measure larger sizes or more blocks.": [
            cost for cost in costs if cost.month is None
        ],
        "blocks depend on each other, so the intervals are too short.": [
            cost for cost in costs if cost.hundred.resembles_last_block
        ],
    }
    for limit, limited in limits.items():
        text += f" For {wording.listing([cost.treatment for cost in limited])}, {limit}" if limited else ""
    return (
        f"{text} Components that run once per node are counted as on this study's nodes, whatever the number of pods."
    )


def _amount(amount: RankInterval | Slope | None, currency: str) -> Cell | None:
    def text(value: float) -> str:
        return f"{wording.signed(value, most=4)}{wording.NBSP}{currency}".strip()

    return None if amount is None else ranged(amount.estimate, amount.low, amount.high, text)
