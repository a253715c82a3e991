"""Predictions for generated systems, compared with measurements; the errors become the model's own uncertainty.

Each contrast of a study of generated systems is predicted from studies of a single hop. A measured amount lies inside
if the prediction's interval contains it. That interval has the model's own error, which is estimated from the other
systems alone, so that no system decides about itself.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Canvas

from meshtrial.design.generated import PATH, systems_of
from meshtrial.design.responses import REGISTRY
from meshtrial.design.study import Contrast, Treatment
from meshtrial.prediction import Options, predict
from meshtrial.prediction.blocks import nodes_of
from meshtrial.prediction.ranges import Estimate
from meshtrial.records.dataset import StudyData
from meshtrial.report import palette, sheet, wording
from meshtrial.report.figure import Columns, Figure, empty
from meshtrial.report.markup import Cell, Column, Fragment, Table, ranged

CPU, LATENCY = "path_cpu_s_per_request", "latency_p50_s"
_P50 = "p50"
_HIDDEN = "delay-"
NOTHING = "Nothing is predicted: name studies of a single hop, recorded on this machine."


@dataclass(frozen=True)
class Compared:
    """An amount that a treatment adds to a system: predicted and measured, in the unit of its response."""

    system: str  # the application's name
    treatment: str
    baseline: str
    response: str
    services: int
    predicted: Estimate  # with the model's error, if it is known
    measured: Estimate
    has_delay: bool  # a negative control, which no model error is estimated from

    @property
    def error(self) -> float:
        """Return measured over predicted, less 1."""
        return _middle(self.measured) / _middle(self.predicted) - 1

    @property
    def is_inside(self) -> bool:
        """Whether the predicted interval contains what was measured."""
        return self.predicted.low <= _middle(self.measured) <= self.predicted.high

    @property
    def deviates(self) -> bool:
        """Whether the two intervals have no value in common."""
        return self.measured.low > self.predicted.high or self.measured.high < self.predicted.low


def accuracy(data: StudyData, records: Sequence[StudyData]) -> tuple[Compared, ...]:
    """Return every contrast of a study of generated systems, predicted from studies of a single hop and measured.

    Contrasts without a prediction or without a measured interval are left out. UsageError if the studies of a single
    hop lack a treatment or cannot be used together.
    """
    contrasts = data.plan.study.all_contrasts() if records else ()
    found = [one for contrast in contrasts for one in _compared(data, records, contrast)]
    return tuple(_widened(one, found) for one in found)


def model_error(compared: Sequence[Compared]) -> float | None:
    """Return the root mean square of measured over predicted less 1, without negative controls; None without any."""
    errors = [one.error for one in compared if not one.has_delay]
    return math.sqrt(statistics.fmean(error**2 for error in errors)) if errors else None


def _compared(data: StudyData, records: Sequence[StudyData], contrast: Contrast) -> list[Compared]:
    treatment, baseline = Treatment.parse(contrast.treatment), Treatment.parse(contrast.baseline)
    system = systems_of(data.plan.study.options).get(treatment.app)
    if system is None:
        return []
    prediction = predict(
        system, records, _single_hop(treatment), _single_hop(baseline), Options(nodes=nodes_of(data), model_error=0.0)
    )
    path = prediction.paths[PATH].added.get(_P50)
    rps = system.calls[0].rps
    by_response = {CPU: prediction.cores and prediction.cores.scaled(1 / rps), LATENCY: path}
    has_delay = any(feature.startswith(_HIDDEN) for feature in treatment.features)
    made = []
    for row in data.verdicts:
        predicted, interval = by_response.get(row.response), (row.difference, row.difference_low, row.difference_high)
        is_asked = (row.treatment, row.baseline) == (contrast.treatment, contrast.baseline)
        if is_asked and None not in interval and predicted and predicted.value:
            about = (treatment.app, prediction.treatment, prediction.baseline, row.response, len(system.calls))
            made.append(Compared(*about, predicted, Estimate(*interval), has_delay))  # type: ignore[arg-type]
    return made


def _single_hop(treatment: Treatment) -> str:
    """Return the name of the same data plane in a study of a single hop."""
    features = tuple(feature for feature in treatment.features if not feature.startswith(_HIDDEN))
    return dataclasses.replace(treatment, features=features, app="").name


def _middle(one: Estimate) -> float:
    assert one.value is not None, "an envelope is not compared"
    return one.value


def _widened(one: Compared, found: Sequence[Compared]) -> Compared:
    """Return it with the model's error, by the other systems, in the predicted interval, in quadrature."""
    error = model_error([two for two in found if two.response == one.response and two.system != one.system])
    if error is None:
        return one
    value = _middle(one.predicted)
    of_model = statistics.NormalDist().inv_cdf(0.975) * error * value
    half = math.hypot((one.predicted.high - one.predicted.low) / 2, of_model)
    return dataclasses.replace(one, predicted=Estimate(value, value - half, value + half))


def accuracy_table(data: StudyData, records: Sequence[StudyData]) -> Fragment:
    """Tabulate predicted against measured, with the errors."""
    columns: list[Column[Compared]] = [
        Column("system", lambda one: one.system),
        Column("services", lambda one: one.services, numeric=True),
        Column("treatment", lambda one: one.treatment + (", delay hidden in a hop" if one.has_delay else "")),
        Column("added", lambda one: REGISTRY[one.response].label, wide=True),
        Column("predicted", lambda one: _amount(one, one.predicted), numeric=True),
        Column("measured", lambda one: _amount(one, one.measured), numeric=True),
        Column("error", lambda one: Cell(wording.signed(100 * one.error) + " %", one.error), numeric=True),
        Column("inside", lambda one: "yes" if one.is_inside else "no, deviates" if one.deviates else "no"),
    ]
    rows = accuracy(data, records)
    return Table.from_rows("Predicted and measured", columns, rows, " ".join(sentences(rows))).fragment(NOTHING)


def sentences(rows: Sequence[Compared]) -> list[str]:
    """Return for each response and treatment how many systems lie inside, and the errors."""
    lines = []
    for response, treatment in dict.fromkeys((one.response, one.treatment) for one in rows):
        group = [one for one in rows if (one.response, one.treatment) == (response, treatment) and not one.has_delay]
        if not group:
            continue
        inside = sum(one.is_inside for one in group)
        median = statistics.median(abs(one.error) for one in group)
        lines.append(
            f"{REGISTRY[response].label} added by {treatment}: {inside} of {len(group)} systems lie inside the "
            f"predicted interval; the median absolute error is {wording.percent(median)}, and the model's own error "
            f"(root mean square) {wording.percent(model_error(group))}."
        )
    lines.append("The predicted interval has the model's error, estimated from the other systems.")
    return lines


def _amount(one: Compared, amount: Estimate) -> Cell:
    about = REGISTRY[one.response]
    value, low, high = (part * about.scale for part in (_middle(amount), amount.low, amount.high))
    return ranged(value, low, high, lambda each: f"{wording.number(each)} {about.unit}")


def accuracy_figure(data: StudyData, records: Sequence[StudyData]) -> Figure:
    """Draw measured against predicted amounts with both intervals; on the diagonal they agree."""
    rows = accuracy(data, records)
    if not rows:
        return empty(NOTHING)
    caption = (
        "Each mark is a system: the predicted and the measured amount, both with their intervals. On the line the two "
        "agree. The predicted interval has the model's error, estimated from the other systems."
    )
    summary = "Measured against predicted amounts of generated systems"
    return Figure.from_rows(lambda: _draw(rows), rows, COLUMNS, summary, _describe, caption)


COLUMNS: Columns[Compared] = {
    "system": lambda one: one.system,
    "treatment": lambda one: one.treatment,
    "hidden delay": lambda one: one.has_delay,
    "response": lambda one: f"{REGISTRY[one.response].label} / {REGISTRY[one.response].unit}",
    "predicted": lambda one: _middle(one.predicted) * REGISTRY[one.response].scale,
    "predicted low": lambda one: one.predicted.low * REGISTRY[one.response].scale,
    "predicted high": lambda one: one.predicted.high * REGISTRY[one.response].scale,
    "measured": lambda one: _middle(one.measured) * REGISTRY[one.response].scale,
    "measured low": lambda one: one.measured.low * REGISTRY[one.response].scale,
    "measured high": lambda one: one.measured.high * REGISTRY[one.response].scale,
}


def _describe(one: Compared) -> str:
    about = REGISTRY[one.response]
    values = [wording.number(_middle(part) * about.scale) for part in (one.predicted, one.measured)]
    return f"{one.system}, {one.treatment}, {about.label}: predicted {values[0]}, measured {values[1]} {about.unit}"


def _draw(rows: Sequence[Compared]) -> Canvas:
    responses = list(dict.fromkeys(one.response for one in rows))
    names = list(dict.fromkeys(one.treatment for one in rows))
    looks = palette.looks_of(rows[0].baseline, None, [rows[0].baseline, *names])
    figure, panels = sheet.panels([3.2] * len(responses))
    for axes, response in zip(panels, responses, strict=True):
        about = REGISTRY[response]
        group = [one for one in rows if one.response == response]
        most = about.scale * max(max(one.predicted.high, one.measured.high) for one in group)
        axes.axline((0, 0), slope=1, color=palette.INK, linewidth=0.8)
        for one in group:
            look = looks[one.treatment]
            predicted, measured = one.predicted.scaled(about.scale), one.measured.scaled(about.scale)
            x, y, ends = _middle(predicted), _middle(measured), (measured.low, measured.high)
            axes.plot([predicted.low, predicted.high], [y, y], color=look.colour)
            sheet.estimate(axes, x, ends, y, look, upright=True, filled=not one.has_delay, size=5, tip=_describe(one))
        axes.set_xlim(0, 1.05 * most)
        axes.set_ylim(0, 1.05 * most)
        axes.set_title(f"{about.label}, added")
        axes.set_xlabel(f"predicted / {about.unit}")
        axes.set_ylabel(f"measured / {about.unit}")
    sheet.key(panels[0], [looks[name] for name in names], lines=False)
    return figure
