"""CPU and memory by part of the system: the mesh's use, separate from the app's and the load generator's."""

from collections.abc import Mapping

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from meshtrial.design.responses import PATH_ROLES
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text, empty
from meshtrial.report.palette import INK, TreatmentStyle

# The load generator is last and not filled: it is measured, but is not a cost of the mesh.
# How a part of the system is drawn: the opacity of its treatment's colour in the bar, and the hatching. The load
# generator is last and not filled: it is measured, but is not a cost of the mesh.
_ROLES = {
    "app": (0.28, ""),
    "data plane": (0.95, ""),
    "policy": (0.6, "////"),
    "control plane": (0.6, "\\\\\\\\"),
    "load generator": (0.0, ""),
}
_NUMBERS_IN = 1.2  # width of the numbers beside the longest bar
_MEASURES = (
    ("cpu_s_per_request", "CPU per request / µs", 1e6),
    ("pss_bytes", "memory (PSS) / MiB", 1 / 2**20),
)


def resources(data: StudyData) -> Figure:
    """Draw CPU per request and memory by role and treatment; the table has every component."""
    used = frames.usage(data)
    if used.is_empty():
        return empty("No run used in the inference has the use of its components recorded.")
    # Sum over components in each run, then average over runs; a part that a run lacks counts as zero.
    runs = used.group_by("load", "treatment").agg(pl.col("run_id").n_unique().alias("runs"))
    sums = used.group_by("load", "treatment", "role").agg(*(pl.col(name).sum() for name, _, _ in _MEASURES))
    means = [(pl.col(name) / pl.col("runs")).alias(name) for name, _, _ in _MEASURES]
    roles = sums.join(runs, on=["load", "treatment"]).with_columns(*means)
    caption = (
        "Mean over the included runs, by part of the system; dots are single runs without the load generator. Strong "
        "colour: data plane. Pale: the app. Empty box at the end: the load generator, which is no cost of a mesh. "
        "Numbers: app, data plane and policy server together, + components beside them."
    )
    parts = []
    for load in frames.loads(data):
        for look, rows in frames.by_treatment(data, roles.filter(load=load)):
            found = {role: [_of_role(rows, role, measure) for measure, _, _ in _MEASURES] for role in _ROLES}
            texts = [
                f"{role} {wording.number(1e6 * cpu)} µs per request and {wording.mebibytes(memory)}"
                for role, (cpu, memory) in found.items()
                if cpu or memory
            ]
            parts.append(f"{look.name}{frames.at(data, load)}: {', '.join(texts)}")
    alt = alt_text("CPU per request and memory by part of the system", parts)
    return Figure(lambda: _draw(data, used, roles), alt, caption, _table(data, used))


def _of_role(rows: pl.DataFrame, role: str, measure: str) -> float:
    values = rows.filter(role=role)[measure].to_list()
    return (values[0] or 0.0) if values else 0.0


def _draw(data: StudyData, used: pl.DataFrame, roles: pl.DataFrame) -> Canvas:
    panels = [(load, *measure) for load in frames.loads(data) if load in roles["load"] for measure in _MEASURES]
    names = frames.order(data, roles["treatment"].to_list())
    looks = palette.looks(data.plan.study)
    figure, axes = sheet.panels([0.75 + sheet.ROW_IN * len(names)] * len(panels))
    for axis, (load, measure, label, scale) in zip(axes, panels, strict=True):
        title, _, unit = label.partition(" / ")
        axis.set_title(frames.panel_title(frames.load_title(data, load), title))
        widest = 0.0
        for place, name in enumerate(names):
            means, runs = (frame.filter(load=load, treatment=name) for frame in (roles, used))
            widths = {role: scale * _of_role(means, role, measure) for role in _ROLES}
            end = _bar(axis, place, looks[name], widths, unit, 0.17 / sheet.ROW_IN)
            in_path = runs.filter(pl.col("role").is_in(PATH_ROLES)).group_by("run_id").agg(pl.col(measure).sum())
            dots = (scale * in_path[measure].drop_nulls().sort()).to_list()
            a_run = TreatmentStyle("a run", INK, "o", "-", True)
            sheet.strip(axis, [place] * len(dots), dots, a_run, upright=False)
            furthest = max(end, *dots, 0.0)
            widest = max(widest, furthest)
            path = sum(width for role, width in widths.items() if role in PATH_ROLES)
            beside = sum(width for role, width in widths.items() if role not in PATH_ROLES)
            text = wording.number(path) + (f" + {wording.number(beside)}" if beside > 0 else "")
            at_end = ((furthest, place), (5, 0), "data", "offset points")
            axis.annotate(text, *at_end, va="center", size=sheet.SMALL)
        axis.set_xlim(0, widest * (1 + _NUMBERS_IN / sheet.WIDTH_IN) if widest else 1)  # room for the numbers
        sheet.rows(axis, names, [looks[name].colour for name in names])
        axis.set_xlabel(unit)
    handles = [
        Patch(facecolor=to_rgba(INK, alpha), edgecolor=INK, linewidth=0.7, hatch=hatch, label=role)
        for role, (alpha, hatch) in _ROLES.items()
        if role in roles["role"]
    ]
    sheet.legend(axes[0], handles, loc="lower right", bbox_to_anchor=(1, 1.0), handlelength=1.3)
    return figure


def _bar(axis: Axes, place: int, look: TreatmentStyle, widths: Mapping[str, float], unit: str, height: float) -> float:
    """Draw the parts of the system as one stacked bar, and return where it ends."""
    left = 0.0
    for role, width in widths.items():
        if width <= 0:
            continue
        alpha, hatch = _ROLES[role]
        face = to_rgba(look.colour, alpha) if alpha else "none"
        (bar,) = axis.barh(place, width, height, left, facecolor=face, edgecolor=look.colour, hatch=hatch or None)
        bar.set_linewidth(0.8)
        sheet.set_tips(bar, f"{look.name}, {role}: {wording.number(width)} {unit}")
        left += width
    return left


def _table(data: StudyData, used: pl.DataFrame) -> pl.DataFrame:
    place = {name: index for index, name in enumerate(frames.order(data, used["treatment"].to_list()))}
    role_place = {role: index for index, role in enumerate(_ROLES)}
    return (
        used.group_by("load", "treatment", "role", "component")
        .agg(
            pl.col("run_id").n_unique().alias("runs"),
            pl.col("count").max().alias("processes"),
            (1e6 * pl.col("cpu_s_per_request").mean()).alias("CPU per request / µs"),
            pl.col("cpu_cores").mean().alias("CPU / cores"),
            (pl.col("pss_bytes").mean() / 2**20).alias("memory (PSS) / MiB"),
        )
        .sort(
            pl.col("load"),
            pl.col("treatment").replace_strict(place, default=len(place)),
            pl.col("role").replace_strict(role_place, default=len(role_place)),
            pl.col("component"),
        )
        .select("treatment", pl.exclude("treatment"))
    )
