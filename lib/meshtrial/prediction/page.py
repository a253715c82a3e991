"""Predictions as tables and a figure, for a terminal, a notebook and a page."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from meshtrial.inference.money import GIB
from meshtrial.prediction import PERCENTILES, PathLatency, Prediction, ServiceCost
from meshtrial.prediction.ranges import Estimate
from meshtrial.records.store import write_json
from meshtrial.report import Fragment, sheet, wording
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Cell, Column, Table, bullets, paragraph
from meshtrial.report.pages import Section, write_page
from meshtrial.report.palette import HUES, INK, TreatmentStyle

SCHEMA = "meshtrial.prediction/1"
MOST_SERVICES = 20  # in a table; all are in the JSON file


def totals(predictions: Sequence[Prediction], currency: str = "") -> Fragment:
    """Tabulate what each treatment adds to the whole system: cores, memory and money."""
    columns: list[Column[Prediction]] = [
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column("cores", lambda one: _amount(one.cores), numeric=True),
        Column("control plane, cores", lambda one: _amount(one.control_plane_cores), numeric=True),
        Column("proxies' memory / GiB", lambda one: _amount(one.memory_bytes, 1 / GIB), numeric=True),
        Column("control plane / GiB", lambda one: _amount(one.control_plane_bytes, 1 / GIB), numeric=True),
        Column("proxies", lambda one: one.proxies + one.nodes, numeric=True),
    ]
    if any(one.month or one.month_requested for one in predictions):
        money = f" / {currency}" if currency else ""
        columns += [
            Column(f"used per month{money}", lambda one: _amount(one.month), numeric=True),
            Column(f"requested per month{money}", lambda one: one.month_requested, numeric=True),
        ]
    one = predictions[0]
    what = "of another session" if one.is_between_sessions else "over blocks"
    note = (
        f"Added to the baseline, with {wording.percent(one.confidence, 2)} intervals {what}, not corrected for their "
        "number. A range without an estimate is an envelope: all that the measured rates allow."
    )
    return Table.from_rows("Predicted for the system", columns, predictions, note).fragment()


def services(prediction: Prediction) -> Fragment:
    """Tabulate the cores that are added at each service, the largest first."""
    ranked = sorted(prediction.services.items(), key=lambda item: -abs(item[1].cores.high) if item[1].cores else 0.0)
    columns: list[Column[tuple[str, ServiceCost]]] = [
        Column("service", lambda row: row[0]),
        Column("cores", lambda row: row[1].reason or _amount(row[1].cores), numeric=True),
    ]
    if any(one.share is not None for one in prediction.services.values()):
        columns.append(Column("share of the service's own CPU", _share, numeric=True))
    more = len(ranked) - MOST_SERVICES
    note = f"{more} further services are in the JSON file." if more > 0 else ""
    caption = f"{prediction.treatment} against {prediction.baseline}, by service"
    return Table.from_rows(caption, columns, ranked[:MOST_SERVICES], note).fragment()


def paths(predictions: Sequence[Prediction]) -> Fragment:
    """Tabulate what each treatment adds to the latency of each path."""
    rows = [(one, name, path) for one in predictions for name, path in one.paths.items()]
    if not rows:
        return paragraph("The system file names no paths, so no latency is predicted.")
    columns: list[Column[tuple[Prediction, str, PathLatency]]] = [
        Column("path", lambda row: row[1]),
        Column("treatment", lambda row: row[0].treatment),
        Column("against", lambda row: row[0].baseline),
        *map(_percentile, PERCENTILES),
        Column("why not", lambda row: row[2].reason or None, wide=True),
    ]
    note = "The percentile of the path's latency with the treatment, less the same percentile without it."
    return Table.from_rows("Latency added to paths", columns, rows, note).fragment()


def _percentile(key: str) -> Column[tuple[Prediction, str, PathLatency]]:
    return Column(f"{key} / ms", lambda row: _amount(row[2].added.get(key), 1e3), numeric=True)


def limits(predictions: Sequence[Prediction]) -> Fragment:
    """List the assumptions, and why some amounts have no number."""
    lines = list(dict.fromkeys(line for one in predictions for line in one.assumptions))
    for one in predictions:
        if one.left_out:
            names = ", ".join(one.left_out[:5]) + (", ..." if len(one.left_out) > 5 else "")
            lines.append(
                f"{one.treatment}: {len(one.left_out)} of {len(one.services)} services have no number and are in no "
                f"sum: {names}."
            )
        if one.memory_reason:
            lines.append(f"{one.treatment}: memory has no number, because {one.memory_reason}.")
    lines.append(f"Predicted from {', '.join(dict.fromkeys(name for p in predictions for name in p.studies))}.")
    return bullets(lines)


def cores(predictions: Sequence[Prediction]) -> Figure:
    """Draw the cores that each treatment adds, with their intervals."""
    drawn = [(one, one.cores) for one in predictions if one.cores]
    names = [f"{one.treatment} − {one.baseline}" for one, _ in drawn]

    def draw() -> Canvas:
        figure, (axis,) = sheet.panels([0.7 + sheet.ROW_IN * max(1, len(drawn))])
        colours = [HUES[place % len(HUES)] for place in range(len(drawn))]
        for place, ((_, amount), colour) in enumerate(zip(drawn, colours, strict=True)):
            look = TreatmentStyle(names[place], colour, "o", "-", True)
            middle = amount.value if amount.value is not None else (amount.low + amount.high) / 2
            is_envelope = amount.value is None
            sheet.estimate(axis, place, (amount.low, amount.high), middle, look, marker=" " if is_envelope else "")
        sheet.rows(axis, names, colours)
        axis.axvline(0, color=INK, linewidth=0.8)
        axis.set_xlabel("added cores, application and data plane")
        return figure

    columns: Mapping[str, Callable[[tuple[Prediction, Estimate]], object]] = {
        "treatment": lambda row: row[0].treatment,
        "against": lambda row: row[0].baseline,
        "cores": lambda row: row[1].value,
        "from": lambda row: row[1].low,
        "to": lambda row: row[1].high,
    }
    caption = "Added cores with their intervals; a line without a dot is an envelope."
    return Figure.from_rows(
        draw,
        drawn,
        columns,
        "Added cores",
        lambda row: f"{row[0].treatment}: {wording.signed(row[1].low)} to {wording.signed(row[1].high)}",
        caption,
    )


def text(predictions: Sequence[Prediction], currency: str = "") -> str:
    """Return everything as text for a terminal."""
    parts = [totals(predictions, currency), *map(services, predictions), paths(predictions), limits(predictions)]
    return "\n\n".join(str(part) for part in parts)


def write_html(path: Path, system: Path, predictions: Sequence[Prediction], command: str, currency: str = "") -> None:
    """Write everything as one offline page, with the command that made it."""
    sections = (
        Section("", (totals(predictions, currency), cores(predictions))),
        Section("By service", tuple(map(services, predictions))),
        Section("Latency of paths", (paths(predictions),)),
        Section("What the numbers suppose", (limits(predictions),)),
        Section("Provenance", (paragraph(f"Made by: {command}"),)),
    )
    write_page(path, f"{system.stem}, predicted", sections)


def write(path: Path, system: Path, predictions: Sequence[Prediction]) -> None:
    """Write the predictions as JSON, every service and path among them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [dataclasses.asdict(one) for one in predictions]
    write_json(path, {"schema": SCHEMA, "system": system.name, "predictions": written})


def _amount(amount: Estimate | None, scale: float = 1.0) -> Cell | None:
    if amount is None:
        return None
    low, high = wording.signed(scale * amount.low), wording.signed(scale * amount.high)
    if amount.value is None:
        return Cell(f"{low} to {high}")
    return Cell(wording.signed(scale * amount.value), scale * amount.value, note=f"{low} to {high}")


def _share(row: tuple[str, ServiceCost]) -> Cell | None:
    share = row[1].share
    return None if share is None else Cell(wording.percent(share), share)
