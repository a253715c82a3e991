"""CPU and memory by part of the system: what the mesh uses, apart from what the app and the load generator use."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from meshtrial.design.responses import PATH_ROLES
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, load_title, panel_title
from meshtrial.report.palette import INK
from meshtrial.report.sheet import SMALL, Sheet


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
        "pay for. Numbers: app, data plane and policy server together, + what stands beside them."
    )
    return Figure(lambda sheet: _draw(data, used, roles, sheet), _alt(data, roles), caption, _table(data, used))


def _by_role(used: pl.DataFrame) -> pl.DataFrame:
    """Sums over components in each run, then means over runs; a part that a run lacks counts as nothing used."""
    runs = used.group_by("load", "treatment").agg(pl.col("run_id").n_unique().alias("runs"))
    sums = used.group_by("load", "treatment", "role").agg(*(pl.col(name).sum() for name, _, _ in _MEASURES))
    return sums.join(runs, on=["load", "treatment"]).with_columns(
        *((pl.col(name) / pl.col("runs")).alias(name) for name, _, _ in _MEASURES)
    )


def _value(roles: pl.DataFrame, load: str, treatment: str, role: str, measure: str) -> float:
    found = roles.filter((pl.col("load") == load) & (pl.col("treatment") == treatment) & (pl.col("role") == role))
    value = found[measure][0] if found.height else None
    return float(value) if value is not None else 0.0


def _draw(data: StudyData, used: pl.DataFrame, roles: pl.DataFrame, sheet: Sheet) -> Canvas:
    present = [load for load in frames.loads(data) if not roles.filter(pl.col("load") == load).is_empty()]
    names = frames.order(data, roles["treatment"].to_list())
    heights = [0.75 + sheet.row_in * len(names)] * (len(present) * len(_MEASURES))
    figure, axes = sheet.panels(heights)
    for number, axis in enumerate(axes):
        load, (measure, label, scale) = present[number // 2], _MEASURES[number % 2]
        shown, _, unit = label.partition(" / ")
        axis.set_title(panel_title(load_title(data, load), shown))
        _bars(data, axis, (used, roles), (load, names), (measure, scale, unit), sheet)
        axis.set_xlabel(unit)
    seen = set(roles["role"].to_list())
    handles = [
        Patch(facecolor=(*_rgb(INK), look.alpha), edgecolor=INK, linewidth=0.7, hatch=look.hatch, label=look.role)
        for look in _ROLES
        if look.role in seen
    ]
    sheet.legend(axes[0], handles, loc="lower right", bbox_to_anchor=(1, 1.0), handlelength=1.3)
    return figure


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _bars(
    data: StudyData,
    axis: Axes,
    tables: tuple[pl.DataFrame, pl.DataFrame],
    what: tuple[str, list[str]],
    measured: tuple[str, float, str],
    sheet: Sheet,
) -> None:
    (used, roles), (load, names), (measure, scale, unit) = tables, what, measured
    looks = palette.looks(data.plan.study)
    widest = 0.0
    for place, treatment in enumerate(names):
        look = palette.look_of(looks, treatment)
        left = path = 0.0
        for role in _ROLES:
            width = scale * _value(roles, load, treatment, role.role, measure)
            if width <= 0:
                continue
            (bar,) = axis.barh(
                place,
                width,
                left=left,
                height=0.17 / sheet.row_in,
                facecolor=(*_rgb(look.colour), role.alpha) if role.alpha else "none",
                edgecolor=look.colour,
                linewidth=0.8,
                hatch=role.hatch or None,
            )
            svg.tip(bar, f"{treatment}, {role.role}: {wording.number(width)} {unit}")
            left += width
            path += width if role.in_path else 0
        furthest = max(left, _dots(axis, used, (load, treatment), (measure, scale), place))
        widest = max(widest, furthest)
        axis.annotate(
            wording.number(path) + ("" if left <= path else f" + {wording.number(left - path)}"),
            xy=(furthest, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            size=SMALL,
        )
    axis.set_xlim(0, widest * (1 + 1.0 / sheet.width_in) if widest else 1)  # room for the numbers
    sheet.rows(axis, names, [palette.look_of(looks, name).colour for name in names])


def _dots(axis: Axes, used: pl.DataFrame, which: tuple[str, str], measured: tuple[str, float], place: int) -> float:
    """Draw single runs; the largest of them."""
    totals = (
        used.filter((pl.col("load") == which[0]) & (pl.col("treatment") == which[1]) & pl.col("role").is_in(PATH_ROLES))
        .group_by("run_id")
        .agg(pl.col(measured[0]).sum())[measured[0]]
        .drop_nulls()
        .sort()
    )
    shown = [measured[1] * float(value) for value in totals]
    axis.plot(
        shown,
        [place] * len(shown),
        marker="o",
        markersize=2.6,
        linestyle="none",
        color=INK,
        alpha=0.55,
        markeredgewidth=0,
    )
    return max(shown, default=0.0)


def _alt(data: StudyData, roles: pl.DataFrame) -> str:
    parts = []
    for load in frames.loads(data):
        here = roles.filter(pl.col("load") == load)
        for treatment in frames.order(data, here["treatment"].to_list()):
            shown = []
            for role in (one.role for one in _ROLES):
                cpu = _value(here, load, treatment, role, "cpu_s_per_request")
                memory = _value(here, load, treatment, role, "pss_bytes")
                if cpu or memory:
                    shown.append(f"{role} {wording.number(1e6 * cpu)} µs a request and {wording.mebibytes(memory)}")
            where = f" at {load}" if len(frames.loads(data)) > 1 else ""
            parts.append(f"{treatment}{where}: {', '.join(shown)}")
    return "CPU a request and memory by part of the system. " + "; ".join(parts) + "."


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
