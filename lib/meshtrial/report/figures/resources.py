"""CPU and memory by part of the system: what the mesh uses, apart from what the app and the load generator use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from meshtrial.design.responses import PATH_ROLES
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, svg, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, strip
from meshtrial.report.palette import INK, TreatmentStyle


@dataclass(frozen=True)
class _RoleLook:
    """A part of the system: how strongly its treatment's colour fills the bar, and its hatching."""

    role: str
    alpha: float
    hatch: str

    @property
    def in_path(self) -> bool:
        return self.role in PATH_ROLES


# The load generator stands last and empty: it is measured, and it is no cost of the mesh.
_ROLES = (
    _RoleLook("app", 0.28, ""),
    _RoleLook("data plane", 0.95, ""),
    _RoleLook("policy", 0.6, "////"),
    _RoleLook("control plane", 0.6, "\\\\\\\\"),
    _RoleLook("load generator", 0.0, ""),
)
_NUMBERS_IN = 1.2  # beside the longest bar
_MEASURES = (
    ("cpu_s_per_request", "CPU a request / µs", 1e6),
    ("pss_bytes", "memory (PSS) / MiB", 1 / 2**20),
)


def resources(data: StudyData) -> Figure:
    """CPU a request and memory by role and treatment, with the components in the table."""
    used = frames.usage(data)
    if used.is_empty():
        return empty("No run that takes part in the inference has its components' use recorded.")
    roles = _by_role(used)
    caption = (
        "Mean over the included runs, by part of the system; dots are single runs without the load generator. Strong "
        "colour: data plane. Pale: the app. The empty box at the end is the load generator, which a mesh does not "
        "pay for. Numbers: app, data plane and policy server together, + what runs beside them."
    )
    return Figure(lambda: _draw(data, used, roles), _alt(data, roles), caption, _table(data, used))


def _by_role(used: pl.DataFrame) -> pl.DataFrame:
    """Sums over components in each run, then means over runs; a part that a run lacks counts as nothing used."""
    runs = used.group_by("load", "treatment").agg(pl.col("run_id").n_unique().alias("runs"))
    sums = used.group_by("load", "treatment", "role").agg(*(pl.col(name).sum() for name, _, _ in _MEASURES))
    means = [(pl.col(name) / pl.col("runs")).alias(name) for name, _, _ in _MEASURES]
    return sums.join(runs, on=["load", "treatment"]).with_columns(*means)


def _of_role(mine: pl.DataFrame, role: str, measure: str) -> float:
    found = mine.filter(role=role)[measure].to_list()
    return (found[0] or 0.0) if found else 0.0


def _draw(data: StudyData, used: pl.DataFrame, roles: pl.DataFrame) -> Canvas:
    panels = [(load, *measure) for load in frames.loads(data) if load in roles["load"] for measure in _MEASURES]
    names = frames.order(data, roles["treatment"].to_list())
    looks = palette.looks(data.plan.study)
    figure, axes = sheet.panels([0.75 + sheet.ROW_IN * len(names)] * len(panels))
    for axis, (load, measure, label, scale) in zip(axes, panels, strict=True):
        shown, _, unit = label.partition(" / ")
        axis.set_title(frames.panel_title(frames.load_title(data, load), shown))
        widest = 0.0
        for place, name in enumerate(names):
            own, runs = (frame.filter(load=load, treatment=name) for frame in (roles, used))
            widths = [(role, scale * _of_role(own, role.role, measure)) for role in _ROLES]
            drawn = _bar(axis, place, looks[name], widths, unit, 0.17 / sheet.ROW_IN)
            # Single runs, without the load generator.
            in_path = runs.filter(pl.col("role").is_in(PATH_ROLES)).group_by("run_id").agg(pl.col(measure).sum())
            dots = (scale * in_path[measure].drop_nulls().sort()).to_list()
            strip(axis, [place] * len(dots), dots, TreatmentStyle("a run", INK, "o", "-", True), upright=False)
            furthest = max(drawn, *dots, 0.0)
            widest = max(widest, furthest)
            beside = ((furthest, place), (5, 0), "data", "offset points")
            axis.annotate(_numbers(widths), *beside, va="center", size=sheet.SMALL)
        axis.set_xlim(0, widest * (1 + _NUMBERS_IN / sheet.WIDTH_IN) if widest else 1)  # room for the numbers
        sheet.rows(axis, names, [looks[name].colour for name in names])
        axis.set_xlabel(unit)
    handles = [
        Patch(facecolor=to_rgba(INK, look.alpha), edgecolor=INK, linewidth=0.7, hatch=look.hatch, label=look.role)
        for look in _ROLES
        if look.role in roles["role"]
    ]
    sheet.legend(axes[0], handles, loc="lower right", bbox_to_anchor=(1, 1.0), handlelength=1.3)
    return figure


def _bar(
    axis: Axes,
    place: int,
    look: palette.TreatmentStyle,
    widths: Sequence[tuple[_RoleLook, float]],
    unit: str,
    height: float,
) -> float:
    """Draw what the parts of the system use behind one another; where the last ends."""
    left = 0.0
    for role, width in widths:
        if width <= 0:
            continue
        face = to_rgba(look.colour, role.alpha) if role.alpha else "none"
        (bar,) = axis.barh(place, width, height, left, facecolor=face, edgecolor=look.colour, hatch=role.hatch or None)
        bar.set_linewidth(0.8)
        svg.tip(bar, f"{look.name}, {role.role}: {wording.number(width)} {unit}")
        left += width
    return left


def _numbers(widths: Sequence[tuple[_RoleLook, float]]) -> str:
    """What the path uses, and what stands beside it."""
    path, beside = (sum(width for role, width in widths if role.in_path == within) for within in (True, False))
    return wording.number(path) + (f" + {wording.number(beside)}" if beside > 0 else "")


def _alt(data: StudyData, roles: pl.DataFrame) -> str:
    parts = []
    for load in frames.loads(data):
        for look, mine in frames.by_treatment(data, roles.filter(load=load)):
            used = {role.role: [_of_role(mine, role.role, measure) for measure, _, _ in _MEASURES] for role in _ROLES}
            shown = [
                f"{role} {wording.number(1e6 * cpu)} µs a request and {wording.mebibytes(memory)}"
                for role, (cpu, memory) in used.items()
                if cpu or memory
            ]
            parts.append(f"{look.name}{frames.at(data, load)}: {', '.join(shown)}")
    return alt_text("CPU a request and memory by part of the system", parts)


def _table(data: StudyData, used: pl.DataFrame) -> pl.DataFrame:
    place = {name: index for index, name in enumerate(frames.order(data, used["treatment"].to_list()))}
    role_place = {look.role: index for index, look in enumerate(_ROLES)}
    return (
        used.group_by("load", "treatment", "role", "component")
        .agg(
            pl.col("run_id").n_unique().alias("runs"),
            pl.col("count").max().alias("processes"),
            (1e6 * pl.col("cpu_s_per_request").mean()).alias("CPU a request / µs"),
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
