"""What the recorded studies found: the tables of the results, and the picture of the first page."""

import functools
import itertools
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from meshtrial.design.changes import LABELS
from meshtrial.design.load import FixedRate
from meshtrial.inference.scaling import IDLE, UNUSED, Axis, growths
from meshtrial.report import wording
from meshtrial.stats.growth import Slope
from pages import samples
from pages.samples import QUOTED, effect_in_short, ratio_of, recorded
from pages.tables import plain, under


def _against_baseline(data: Any) -> list[tuple[str, ...]]:
    loads = [load.label for load in data.plan.study.loads if isinstance(load, FixedRate)]
    baseline = data.plan.study.baseline
    rows = {(row.treatment, row.load, row.response): row for row in data.verdicts if row.baseline == baseline.name}
    return [
        (f"`{one.name}`", *(ratio_of(rows[one.name, load, response]) for load in loads for response in QUOTED))
        for one in data.plan.study.treatments
        if one != baseline
    ]


def _places(data: Any) -> list[tuple[str, ...]]:
    from meshtrial.inference.ranking import rankings

    loads = [load.label for load in data.plan.study.loads]
    of = {(one.load, one.response.name): one for one in rankings(data)}
    columns = [{p.treatment: p.places for p in of[load, name].places} for load in loads for name in QUOTED]
    first = [place.treatment for place in of[loads[0], QUOTED[0]].places]
    return [(f"`{name}`", *(column[name] for column in columns)) for name in first]


def _each_feature(data: Any) -> list[tuple[str, ...]]:
    """What a treatment's last feature adds to the same treatment without it."""
    rows = {(row.treatment, row.baseline, row.response): row for row in data.verdicts}
    pairs = dict.fromkeys((row.treatment, row.baseline) for row in data.verdicts if row.response in QUOTED)
    features = [pair for pair in pairs if pair[0].rpartition("+")[0] == pair[1]]
    return [(f"`{a}`", *(ratio_of(rows[a, b, response]) for response in QUOTED)) for a, b in features]


def _alone(data: Any) -> list[tuple[str, ...]]:
    """What a treatment costs alone, against the same beside idle neighbours."""
    study = data.plan.study
    rows = {(row.treatment, row.response): row for row in data.verdicts if row.baseline == study.baseline.name}
    alone = [one.name for one in study.treatments if one.version]
    beside = f"{study.blocks} blocks, {len(study.treatments) - 2} neighbours"
    return [(beside, *(effect_in_short(rows[name, r]) for r in QUOTED)) for name in alone]


def _obeyed(data: Any) -> list[tuple[str, ...]]:
    """Until all requests obey a change: the median of the changes that were, their range, and the contrast."""
    rows, none, quiet = [], data.plan.study.baseline.name, data.plan.study.loads[0].label
    own = [run for run in data.runs if run.load == quiet]
    against = {(row.treatment, row.response): row for row in data.verdicts if (row.baseline, row.load) == (none, quiet)}
    for treatment in data.plan.study.treatments:
        for name, label in LABELS.items():
            response = f"propagation_all_{name}_s"
            made = [one for run in own if run.treatment == treatment.name for one in run.extra["changes"]]
            took = [one["all_s"] for one in made if one["name"] == name and one["all_s"] is not None]
            if not took:
                continue
            row = against.get((treatment.name, response))
            shown = [_number(response, value) for value in (statistics.median(took), min(took), max(took))]
            said = "–" if row is None else effect_in_short(row)
            times = f"{shown[0]} ({shown[1]} to {shown[2]})"
            rows.append((f"`{treatment.name}`", label, str(len(took)), times, said))
    return rows


def _by_session(data: Any) -> list[tuple[str, ...]]:
    """Return the range of the effects of the sessions and the prediction of another one, by treatment and response."""
    from meshtrial.inference.sessions import session_effects

    baseline = data.plan.study.baseline.name
    rows = [row for row in data.verdicts if row.response in QUOTED and row.baseline == baseline and not row.twin]
    made = []
    for row, by_difference in itertools.product(rows, (True, False)):
        found = session_effects(data, row, by_difference=by_difference)
        ends = [(min(found.estimates), max(found.estimates)), *([] if found.low is None else [(found.low, found.high)])]
        write = functools.partial(wording.interval_in_unit, row.response) if by_difference else wording.change_interval
        label = wording.short_label(row.response).removesuffix(" of app and data plane")
        made.append((f"`{row.treatment}`", label, *(plain(write(*each)) for each in ends)))
    return made


def _predicted(data: Any, single_hops: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what was predicted for each generated system from studies of a single hop, and what was measured."""
    from meshtrial.prediction.accuracy import CPU, LATENCY, accuracy

    def compared(hops: Sequence[Any]) -> list[tuple[str, ...]]:
        if len(hops) < len(single_hops):
            return recorded(single_hops[len(hops)], lambda hop: compared([*hops, hop]))
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for one in accuracy(data, hops):
            found.setdefault((one.system, one.treatment), {})[one.response] = one
        several = len({treatment for _, treatment in found}) > 1
        names = {(system, name): f"`{system}`, `{name}`" if several else f"`{system}`" for system, name in found}
        return [(names[key], _pair(both[CPU]), _pair(both[LATENCY])) for key, both in found.items()]

    return compared([])


def _pair(one: Any) -> str:
    """A predicted and a measured amount in milliseconds, and whether the predicted interval misses the measured one."""
    values = "/".join(f"{1e3 * amount.value:.3g}" for amount in (one.predicted, one.measured))
    return values if one.is_inside else f"{values}, outside"


def _per_thousand(axis: Axis, responses: tuple[str, ...], data: Any) -> list[tuple[str, ...]]:
    """Return what a thousand more of an axis cost with each treatment, over blocks."""
    costs = {(one.ladder.treatment, one.ladder.response): one.cost for one in growths(data, responses, axis)}
    treatments = dict.fromkeys(name for name, _ in costs)
    return [(f"`{name}`", *(_slope(costs.get((name, held)), held) for held in responses)) for name in treatments]


def _number(response: str, value: float, sign: bool = False) -> str:
    """Return a value in the response's unit, which the table's heading names."""
    return plain(wording.in_unit(response, value, sign=sign)).rpartition(" ")[0]


def _slope(slope: Slope | None, response: str) -> str:
    if slope is None:
        return "–"
    value, low, high = (_number(response, 1000 * end, sign=True) for end in (slope.estimate, slope.low, slope.high))
    return f"{value} ({low} to {high})"


def _delays(data: Any) -> list[tuple[str, ...]]:
    """Return the effect of each injected delay."""
    none = data.plan.study.baseline.name
    rows = [row for row in data.verdicts if (row.response, row.baseline) == (QUOTED[0], none)]
    rows.sort(key=lambda row: not row.twin)
    return [(f"`{row.treatment}`", effect_in_short(row)) for row in rows]


def results(text: str) -> str:
    """What the recorded studies found."""
    tables: list[tuple[str, str | tuple[str, ...], Callable[[Any], list[tuple[str, ...]]]]] = [
        ("## What each mesh costs", samples.MESHES, _against_baseline),
        ("## What each feature adds", tuple(samples.FEATURES.values()), _each_feature),
        ("## What a post-quantum key exchange costs", samples.EXCHANGED, _against_baseline),
        *(
            (f"## {heading}", sample, functools.partial(_predicted, single_hops=single_hops))
            for heading, (sample, single_hops) in samples.PREDICTED.items()
        ),
        ("## What idle neighbours cost", samples.BESIDE, _alone),
        ("## How long until a change takes effect", samples.OBEYED, _obeyed),
        ("## What unused services cost", samples.UNCALLED, functools.partial(_per_thousand, UNUSED, samples.HELD)),
        ("## What idle connections cost", samples.CONNECTED, functools.partial(_per_thousand, IDLE, samples.OPENED)),
        ("## Known delays, found again", samples.DELAYED, _delays),
    ]
    for heading, names, made in tables:
        each = (names,) if isinstance(names, str) else names
        text = under(text, heading, [row for sample in each for row in recorded(sample, made)])
    by_protocol = [recorded(sample, _against_baseline) for sample in samples.RELEASES.values()]
    rows = [(one[0], *one[1:], *other[1:]) for one, other in zip(*by_protocol, strict=True)]
    text = under(text, "## Envoy from release to release", rows)
    for heading, names in samples.SESSIONS.items():
        known, later = (recorded(sample, _by_session) for sample in names)
        text = under(text, f"## {heading}", [(*a, b[2]) for a, b in zip(known, later, strict=True)])
    ranks, ranks_at_200 = (
        {row[0]: row[1:] for row in recorded(sample, _places)} for sample in (samples.MESHES, samples.AT_200)
    )
    return under(
        text, "## Meshes against each other", [(name, *cells, *ranks_at_200[name]) for name, cells in ranks.items()]
    )


def picture(text: str) -> str:
    """The forest plot of the first page, for light and dark pages."""
    del text
    return recorded(samples.MESHES, _forest)


def _forest(data: Any) -> str:
    from meshtrial.report import palette
    from meshtrial.report.figures.forest import forest

    light, dark = palette.variables(dark=False), palette.variables(dark=True)
    style = (
        f"svg{{{light}color:#1c2128;background:#fff;font-family:system-ui,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}--mt-paper:#12161b;color:#e4e8ed;background:#12161b}}}}"
    )
    drawn = forest(data, "500rps-10c").svg
    return re.sub(r"^(<svg[^>]*>)", lambda head: f"{head[1]}<style>{style}</style>", drawn, count=1) + "\n"
