"""The explorer: widgets select a view, which shows the results of public calls and their lines of Python.

The view is an HTML widget and not an output of the cell as in ``ipywidgets.interactive_output``. So a page without
widgets can show it, one change of several widgets updates it once, and only the visible tab is drawn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from meshtrial.api import figures, tables
from meshtrial.api.study import RecordedStudy, open_study, recorded_studies
from meshtrial.errors import MeshtrialError, MissingToolError, UsageError
from meshtrial.report import wording
from meshtrial.report.markup import ON_PAGE, Displayable, Fragment, join, paragraph

try:
    from ipywidgets import HTML, Box, Button, Checkbox, Dropdown, Label, SelectionSlider, Tab, ToggleButtons, VBox
except ModuleNotFoundError:
    raise MissingToolError("explore needs ipywidgets, which is missing; run `make lab` in the checkout") from None

Widget: TypeAlias = Any  # ipywidgets has no types
Arguments: TypeAlias = tuple[tuple[str, Any], ...]

# The views of each tab, and the public function of each view.
TABS = {
    "Verdicts": {
        "Picture": "figures.forest",
        "At a glance": "figures.answer",
        "Table": "tables.verdict_table",
        "In a sentence": "tables.verdict_sentence",
        "Added by percentile": "figures.added_latency",
        "Exploratory": "tables.exploratory_table",
    },
    "All runs": {
        "Block by block": "figures.runs_by_block",
        "Distribution": "figures.latency_ccdf",
        "Over their time": "figures.course",
        "Run by run": "figures.strip",
        "CPU and memory": "figures.resources",
        "Order and drift": "figures.drift",
        "By session": "figures.sessions",
        "Validity": "tables.validity",
    },
    "One run": {
        "Requests": "figures.requests_over_time",
        "Resources": "tables.run_resources",
        "Resources over time": "figures.components_over_time",
        "Checks": "tables.run_gates",
        "Proofs": "tables.run_proofs",
        "Logs": "tables.run_log",
        "About it": "tables.run_facts",
    },
    "Two studies": {"Verdicts together": "figures.two_studies", "What agrees": "tables.between"},
}
OF_A_RESPONSE = ("figures.runs_by_block", "figures.drift")
MARGINS = ("1%", "2%", "3%", "5%", "7.5%", "10%", "15%", "20%", "30%", "50%", "75%", "100%", "150%", "200%")
FLOORS = ("0.001ms", "0.01ms", "0.02ms", "0.05ms", "0.1ms", "0.2ms", "0.5ms", "1ms", "2ms", "5ms")
LEVELS = (0.2, 0.1, 0.05, 0.025, 0.01, 0.001)
# Titles of widgets are left-aligned in a column.
TITLED = {"style": {"description_width": "5.2rem"}, "layout": {"width": "27rem", "max_width": "98%"}}
LONG = TITLED | {"layout": {"width": "44rem", "max_width": "98%"}}


def explore(study: str | Path | RecordedStudy = "") -> Explorer:
    """Explore recorded studies with widgets, shown by JupyterLab if this is the last line of a cell.

    Parameters
    ----------
    study : str, Path or RecordedStudy, optional
        The study shown first: a folder, a packed study, or an open study. By default the first sample.

    Raises
    ------
    MeshtrialError
        If there is no such study, or it cannot be read.
    """
    if isinstance(study, RecordedStudy):
        return Explorer(study.path)
    listed = [*recorded_studies().values()]
    if not study and not listed:
        raise UsageError("no recorded study; run `make study` first")
    return Explorer(Path(study).expanduser().resolve() if study else listed[0])


class Explorer:
    """Widgets that select a study, its treatments and loads, and a view of them, above that view."""

    def __init__(self, path: Path) -> None:
        for cached in (_study, _contents):
            cached.cache_clear()  # a study may have new runs since another explorer read it
        path = _opened(path).path  # a packed study is unpacked into a folder
        listed = recorded_studies() | {f"{path.parent.name}-{path.name}": path}
        self.listed = [(_label(name), folder) for name, folder in listed.items()]
        self.studies = Dropdown(options=self.listed, value=path, description="Study", **LONG)
        label = {"layout": {"width": "5.2rem"}}
        self.treatments, self.loads = (_row(Label(title, **label)) for title in ("Treatments", "Loads"))
        slider = TITLED | {"continuous_update": False}
        self.margin = SelectionSlider(options=_declared(MARGINS), description="Margin", **slider)
        self.floor = SelectionSlider(options=_declared(FLOORS), description="at least", **slider)
        self.alpha = Dropdown(options=_declared(LEVELS, 0.0), description="Alpha", **TITLED)
        self.baseline, self.response = (Dropdown(description=title, **TITLED) for title in ("Baseline", "Response"))
        self.run, self.log, self.other = (Dropdown(description=title, **LONG) for title in ("Run", "Log", "Beside"))
        self.reset = Button(description="Back to what was declared", icon="undo", layout={"width": "auto"})
        self.before, self.after = (Button(icon=f"chevron-{to}", layout={"width": "3rem"}) for to in ("left", "right"))
        look = {"style": {"button_width": "auto"}, "layout": {"margin": "8px 0"}}
        self.views = [ToggleButtons(options=names, **look) for names in TABS.values()]
        verdicts, runs, run, two = self.views
        pages = (
            (_row(self.margin, self.floor), _row(self.alpha, self.baseline), _row(self.reset), verdicts),
            (runs, self.response),
            (_row(self.run, self.before, self.after), run, self.log),
            (self.other, two),
        )
        self.tabs = Tab([VBox(page) for page in pages], titles=[*TABS], selected_index=0)
        self.about, self.state, self.view, self.code = self.places = [HTML() for _ in range(4)]
        self.page = VBox([self.studies, self.about, self.treatments, self.loads, self.tabs, *self.places[1:]])
        self.page.add_class("mt-explorer")
        choices = (self.margin, self.floor, self.alpha, self.baseline, self.response, self.run, self.log, self.other)
        for choice in (*choices, *self.views):
            choice.observe(lambda _: self._follow(), "value")
        self.studies.observe(lambda _: self._follow(self._open), "value")
        self.tabs.observe(lambda _: self._follow(self._clear), "selected_index")
        self.reset.on_click(lambda _: self._follow(self._reset_analysis))
        self.before.on_click(lambda _: self._step(-1))
        self.after.on_click(lambda _: self._step(1))
        self._following = False
        self._follow(self._open)

    @property
    def study(self) -> RecordedStudy:
        """The selected study, for use in further cells."""
        return self._chosen.study

    @property
    def _chosen(self) -> View:
        return View(self.studies.value, only=_arguments(treatments=_ticked(self.treatments), loads=_ticked(self.loads)))

    def _follow(self, change: Callable[[], None] | None = None) -> None:
        """Make a change and update the view once; changes of widgets that it causes are ignored."""
        if self._following:
            return
        self._following = True
        try:
            if change:
                change()
            views = (self._verdicts, self._all_runs, self._one_run, self._two_studies)
            index = self.tabs.selected_index or 0
            view = views[index](self._chosen, self.views[index].value)
            self.view.value, self.code.value = view.html(), _styled("python", view.code())
            self._seen = view
        except MeshtrialError as error:  # the study cannot be read
            self.about.value = _styled("paragraph", str(error), "")
            _show(False, self.treatments, self.loads, self.tabs)
        finally:
            self._following = False

    def _clear(self) -> None:  # hide the previous view while the next one is made
        self.state.value = self.view.value = self.code.value = ""
        self._seen = View(self.studies.value)

    def _open(self) -> None:
        self._clear()
        study = _opened(self.studies.value)
        data, plan = study.recorded, study.recorded.plan.study
        valid = f"{len(data.runs)} runs, {sum(run.valid for run in data.runs)} of them valid"
        facts = f"{valid}; {plan.blocks} blocks planned; backend {plan.backend}; app {plan.app}"
        self.about.value = _styled("about", study.question, facts, _typed(study.path))
        twins = [one.name for one in plan.treatments if one.twin]
        self._tick(self.treatments, study.treatments, {plan.baseline.name, *twins, *study.verdicts()["baseline"]})
        self._tick(self.loads, [load.label for load in plan.loads])
        self.baseline.options = _declared(name for name in study.treatments if name not in twins)
        self._reset_analysis()
        _show(True, self.tabs)

    def _reset_analysis(self) -> None:
        for choice in (self.margin, self.floor, self.alpha, self.baseline):
            choice.index = 0

    def _tick(self, row: Widget, names: Sequence[str], fixed: Collection[str] = ()) -> None:
        """Offer names as ticked boxes; ``fixed`` ones cannot be unticked, and a single one is not shown."""
        boxes = [Checkbox(True, description=name, indent=False, layout={"width": "auto"}) for name in names]
        for box in boxes:
            box.disabled = box.description in fixed
            box.tooltip = "always shown: others are compared with it" if box.disabled else ""
            box.observe(lambda _: self._follow(), "value")
        row.children = [row.children[0], *boxes]
        _show(len(names) > 1, row)

    def _step(self, by: int) -> None:
        if self.run.options:
            self.run.index = (self.run.index + by) % len(self.run.options)

    def _verdicts(self, chosen: View, name: str) -> View:
        margin = ",".join(filter(None, (self.margin.value, self.floor.value)))
        asked = _arguments(margin=margin, alpha=self.alpha.value, baseline=self.baseline.value)
        view, self.state.value = replace(chosen, names=(name,), reanalyse=asked), ""
        with suppress(MeshtrialError):  # the view shows the error
            later = view.study.after_the_fact
            self.state.value = _styled("declared", later)
            view = replace(view, names=("tables.moved", name)) if later else replace(view, reanalyse=())
        _show(bool(view.reanalyse), self.reset)
        return view

    def _all_runs(self, chosen: View, view: str) -> View:
        study = _opened(chosen.path)
        judged = dict.fromkeys([*study.primary, *study.verdicts()["response"]])
        measured = set(study.responses()["response"])
        _offer(self.response, [(wording.short_label(name), name) for name in judged if name in measured])
        _show(view in OF_A_RESPONSE, self.response)
        arguments = (self.response.value or "",) if view in OF_A_RESPONSE else ()
        return replace(chosen, names=(view,), arguments=arguments)

    def _one_run(self, chosen: View, name: str) -> View:
        runs = []
        for run in chosen.study.data.runs:
            words = [f"block {run.repetition}", run.treatment, run.load]
            words += [f"attempt {run.attempt}"] * (run.attempt > 1) + ["not valid"] * (not run.valid)
            runs.append((" · ".join(words), (run.run_id, run.attempt)))
        _offer(self.run, runs)
        run_id, attempt = self.run.value or ("", 1)
        logs: tuple[str, ...] = ()
        if is_log := name == "tables.run_log":
            with suppress(MeshtrialError):  # the view shows the error
                logs = chosen.study.logs(run_id, attempt)
        _offer(self.log, [(log, log) for log in logs])
        _show(bool(logs), self.log)
        arguments = (run_id, *([self.log.value or ""] if is_log else []), *([attempt] if attempt > 1 else []))
        return replace(chosen, names=(name,), arguments=arguments)

    def _two_studies(self, chosen: View, name: str) -> View:
        # Studies of the same question, which can be compared, come first.
        alike = tuple(f"{_opened(chosen.path).name}{end}" for end in " -")
        others = [(label, path) for label, path in self.listed if path != chosen.path]
        _offer(self.other, sorted(others, key=lambda option: not option[0].startswith(alike)), keep=False)
        return View(chosen.path, names=(name,) if self.other.value else (), other=self.other.value)

    def _repr_mimebundle_(self, **asked: Any) -> dict[str, Any]:
        """Return the widgets; for pages without widgets, such as HTML of an executed notebook, the current view."""
        views = "\n".join(place.value for place in self.places)
        on_page = "\n".join(self._seen.page() if place is self.view else place.value for place in self.places)
        forms = {ON_PAGE: on_page, "text/html": views, "text/plain": repr(self)}
        return {**self.page._repr_mimebundle_(**asked), **forms}

    def __repr__(self) -> str:
        return f"Explorer of {self.study!r}"


@dataclass(frozen=True)
class View:
    """Public functions of one or two studies, shown one below the other."""

    path: Path
    reanalyse: Arguments = ()  # arguments of the method of this name; empty: not called
    only: Arguments = ()
    names: tuple[str, ...] = ()  # of the functions, without ``mt.``
    arguments: tuple[Any, ...] = ()  # after the studies
    other: Path | None = None

    @property
    def study(self) -> RecordedStudy:
        """The study that the view shows."""
        return _study(self.path, self.reanalyse, self.only)

    def html(self) -> str:
        """Return the view as HTML; if it cannot be made, the reason."""
        return "\n".join(part._repr_html_() for part in _contents(self))

    def page(self) -> str:
        """Return the view for a page without widgets, including the drawings."""
        return join(*_contents(self)).html

    def code(self) -> str:
        """Return the lines of Python that make the view; ``mt`` is ``meshtrial``."""
        opening = [f"study = mt.open_study({_typed(self.path)!r})"]
        if self.reanalyse or self.only:
            opening.append("study = study" + _called("reanalyse", self.reanalyse) + _called("only", self.only))
        if self.other:
            opening.append(f"other = mt.open_study({_typed(self.other)!r})")
        given = ", ".join(["study", *(["other"] if self.other else []), *map(repr, self.arguments)])
        return "\n".join([*opening, *(f"mt.{name}({given})" for name in self.names)])


@lru_cache(maxsize=32)
def _study(path: Path, reanalyse: Arguments, only: Arguments) -> RecordedStudy:
    study = _opened(path) if reanalyse or only else open_study(path)
    study = study.reanalyse(**dict(reanalyse)) if reanalyse else study
    return study.only(**dict(only)) if only else study


@lru_cache(maxsize=64)
def _contents(view: View) -> tuple[Displayable, ...]:
    rooms = {"figures": figures, "tables": tables}
    try:
        given = (view.study, *([_opened(view.other)] if view.other else []), *view.arguments)
        functions = (getattr(rooms[room], name) for room, name in (one.split(".") for one in view.names))
        return tuple(function(*given) for function in functions)
    except MeshtrialError as error:
        return (paragraph(str(error)),)


def _opened(path: Path) -> RecordedStudy:
    return _study(path, (), ())


def _typed(path: Path) -> str:  # as the path would be typed in this notebook
    return min(os.path.relpath(path), str(path), key=len)


def _called(name: str, arguments: Arguments) -> str:
    return f".{name}({', '.join(f'{key}={value!r}' for key, value in arguments)})" if arguments else ""


def _label(name: str) -> str:
    """Return ``ambient_vs_no_mesh · 2026-11-21 21:17 · 77c58730`` for the name of that study's folder."""
    return re.sub(r"^(.+)-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ-(\w+)$", r"\1 · \2-\3-\4 \5:\6 · \7", name)


def _declared(values: Iterable[Any], declared: Any = "") -> list[tuple[str, Any]]:
    return [("as declared", declared), *((str(value), value) for value in values)]


def _arguments(**arguments: Any) -> Arguments:
    return tuple((name, value) for name, value in arguments.items() if value)


def _ticked(row: Widget) -> tuple[str, ...]:
    """Return the names of ticked boxes; empty if all are ticked."""
    boxes = row.children[1:]
    names = tuple(box.description for box in boxes if box.value)
    return names if len(names) < len(boxes) else ()


def _offer(choice: Widget, options: Sequence[tuple[str, Any]], *, keep: bool = True) -> None:
    """Set the options; the current value is kept if it is one of them and ``keep`` is true, else the first is set."""
    if choice.options != tuple(options):
        values, before = [value for _, value in options], choice.value
        choice.options = tuple(options)
        choice.value = before if keep and before in values else next(iter(values), None)


def _row(*children: Widget) -> Widget:
    return Box(children, layout={"flex_flow": "row wrap", "align_items": "center", "grid_gap": "2px 14px"})


def _show(is_shown: bool, *widgets: Widget) -> None:
    for widget in widgets:
        widget.layout.display = None if is_shown else "none"


def _styled(name: str, *values: Any) -> str:
    return Fragment(name, *values)._repr_html_()
