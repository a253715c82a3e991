"""The explorer's tabs: what each offers to choose, and which public call each choice is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets

from meshtrial.api.study import RecordedStudy
from meshtrial.errors import MeshtrialError
from meshtrial.explore.views import Call, Chosen, View
from meshtrial.explore.widgets import Html, Pane, Quiet, Widget, box, buttons, labelled, menu, row, slider
from meshtrial.report import wording
from meshtrial.report.markup import part, style_sheet

DECLARED = "as declared"
MARGINS = ("1%", "2%", "3%", "5%", "7.5%", "10%", "15%", "20%", "30%", "50%", "75%", "100%", "150%", "200%")
FLOORS = ("0.001ms", "0.01ms", "0.02ms", "0.05ms", "0.1ms", "0.2ms", "0.5ms", "1ms", "2ms", "5ms")
LEVELS = (0.2, 0.1, 0.05, 0.025, 0.01, 0.001)


class Tab(Quiet, ABC):
    """A page of the explorer."""

    title: str
    SHOWN: tuple[tuple[str, str | Call], ...]  # a name for people, and the public function
    page: Widget

    def __init__(self) -> None:
        self._chosen: Chosen | None = None
        self.what = buttons(self.SHOWN, self.changed)
        self.pane = Pane()

    @property
    def parts(self) -> Sequence[Html]:
        """What it shows, for where there are no widgets."""
        return self.pane.shown, self.pane.code

    @abstractmethod
    def offer(self, study: RecordedStudy) -> None:
        """Another study: what can be chosen of it."""

    @abstractmethod
    def show(self, chosen: Chosen) -> None:
        """The views of what is chosen."""

    def clear(self) -> None:
        """Show nothing."""
        for html in self.parts:
            html.show("")

    def changed(self) -> None:
        """One of the tab's own widgets has another value."""
        if self._chosen is not None and not self.quiet:
            self.show(self._chosen)


class Verdicts(Tab):
    """Verdicts as declared; and after the fact under another margin, error level or baseline."""

    title = "Verdicts"
    SHOWN = (
        ("Picture", Call("figures.forest")),
        ("At a glance", Call("figures.answer")),
        ("Table", Call("tables.verdict_table")),
        ("In a sentence", Call("tables.verdict_sentence")),
        ("Added by percentile", Call("figures.added_latency")),
        ("Exploratory", Call("tables.exploratory_table")),
    )

    def __init__(self) -> None:
        super().__init__()
        as_declared = [(DECLARED, "")]
        self.margin = slider("Margin", as_declared + [(_spaced(text), text) for text in MARGINS], self.changed)
        self.floor = slider("at least", as_declared + [(_spaced(text), text) for text in FLOORS], self.changed)
        self.alpha = menu("Alpha", self.changed, "27rem")
        self.alpha.options = [(DECLARED, 0.0), *((f"{level:g}", level) for level in LEVELS)]
        self.baseline = menu("Baseline", self.changed, "27rem")
        self.reset = ipywidgets.Button(description="Back to what was declared", icon="undo")
        self.reset.layout.width, self.reset.layout.align_self = "auto", "flex-start"
        self.reset.on_click(lambda _: self._declare())
        self.state = Html()
        self.page = box(
            row(self.margin, self.floor),
            row(self.alpha, self.baseline),
            self.state.widget,
            self.reset,
            self.what,
            self.pane.page,
        )

    @property
    def parts(self) -> Sequence[Html]:
        """What it shows."""
        return self.state, *super().parts

    def offer(self, study: RecordedStudy) -> None:
        """Another study has other treatments; what was asked of the one before is not asked of it."""
        twins = {one.name for one in study.recorded.plan.study.treatments if one.twin}
        with self.held():
            _offer(self.baseline, [(DECLARED, ""), *((name, name) for name in study.treatments if name not in twins)])
            self._to_declared()

    def show(self, chosen: Chosen) -> None:
        """The verdicts, and what moved."""
        self._chosen = chosen
        margin = ",".join(filter(None, (self.margin.value, self.floor.value)))
        asked = replace(chosen, margin=margin, alpha=self.alpha.value or None, baseline=self.baseline.value or "")
        try:
            later = asked.study().after_the_fact
            # What was asked for may be what was declared: then there is nothing to mark.
            shown = asked if later else chosen
            self.state.show(str(part("fragment", part("declared", later), style_sheet())))
        except MeshtrialError:
            later, shown = "", asked  # the view itself says why
            self.state.show("")
        self.reset.layout.display = None if shown.asked else "none"
        calls = (Call("tables.moved"), self.what.value) if later else (self.what.value,)
        self.pane.show(View(shown, calls))

    def _declare(self) -> None:
        with self.held():
            self._to_declared()
        self.changed()

    def _to_declared(self) -> None:
        self.margin.value = self.floor.value = self.baseline.value = ""
        self.alpha.value = 0.0


class AllRuns(Tab):
    """All runs of the study together."""

    title = "All runs"
    SHOWN = (
        ("Block by block", "figures.runs_by_block"),
        ("Distribution", "figures.latency_ccdf"),
        ("Over their time", "figures.course"),
        ("Run by run", "figures.strip"),
        ("CPU and memory", "figures.resources"),
        ("Order and drift", "figures.drift"),
        ("Validity", "tables.validity"),
    )
    _OF_A_RESPONSE = ("figures.runs_by_block", "figures.drift")

    def __init__(self) -> None:
        super().__init__()
        self.response = menu("Response", self.changed, "30rem")
        self.page = box(self.what, self.response, self.pane.page)

    def offer(self, study: RecordedStudy) -> None:
        """Another study has other responses: the primary ones first."""
        judged = dict.fromkeys([*study.primary, *(row.response for row in study.recorded.verdicts)])
        measured = set(study.recorded.table["response"].unique().to_list())
        with self.held():
            _offer(self.response, [(wording.short_label(name), name) for name in judged if name in measured])

    def show(self, chosen: Chosen) -> None:
        """The figure or table."""
        self._chosen = chosen
        name = self.what.value
        of_response = name in self._OF_A_RESPONSE
        self.response.layout.display = None if of_response else "none"
        arguments: tuple[Any, ...] = (self.response.value,) if of_response and self.response.value else ()
        self.pane.show(View(chosen, (Call(name, arguments),)))


class OneRun(Tab):
    """Any run: its requests, resources, checks, proofs and logs."""

    title = "One run"
    SHOWN = (
        ("Requests", "figures.requests_over_time"),
        ("Resources", "tables.run_resources"),
        ("Resources over time", "figures.components_over_time"),
        ("Checks", "tables.run_gates"),
        ("Proofs", "tables.run_proofs"),
        ("Logs", "tables.run_log"),
        ("About it", "tables.run_facts"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.run = menu("Run", self.changed, "36rem")
        self.before, self.after = self._step("chevron-left", -1), self._step("chevron-right", 1)
        self.log = menu("Log", self.changed)
        self.page = box(row(self.run, self.before, self.after), self.what, self.log, self.pane.page)

    def offer(self, study: RecordedStudy) -> None:
        """Another study has other runs."""
        with self.held():
            self._offer_runs(study)

    def show(self, chosen: Chosen) -> None:
        """What is asked of the run; runs of treatments and loads that are not shown are not offered."""
        self._chosen = chosen
        study = chosen.study()
        with self.held():
            self._offer_runs(study)
            self._offer_logs(study)
        if self.run.value is None:
            self.pane.show(None)
            return
        run_id, attempt = self.run.value
        arguments: tuple[Any, ...] = (run_id,)
        if self.what.value == "tables.run_log":
            arguments = (run_id, self.log.value or "")
        if attempt > 1:
            arguments = (*arguments, attempt)
        self.pane.show(View(chosen, (Call(self.what.value, arguments),)))

    def _offer_runs(self, study: RecordedStudy) -> None:
        several = len(study.recorded.plan.study.loads) > 1
        offered = []
        for run in study.data.runs:
            load, attempt = run.load if several else "", f"attempt {run.attempt}" if run.attempt > 1 else ""
            said = (f"block {run.repetition}", run.treatment, load, attempt, "" if run.valid else "not valid")
            offered.append((" · ".join(filter(None, said)), (run.run_id, run.attempt)))
        _offer(self.run, offered)

    def _offer_logs(self, study: RecordedStudy) -> None:
        names: tuple[str, ...] = ()
        if self.run.value is not None and self.what.value == "tables.run_log":
            try:
                names = study.logs(*self.run.value)
            except MeshtrialError:
                names = ()  # the view itself says why
        _offer(self.log, [(name, name) for name in names])
        self.log.layout.display = None if names else "none"

    def _step(self, icon: str, by: int) -> Widget:
        made = ipywidgets.Button(icon=icon, tooltip="the run before" if by < 0 else "the next run")
        made.layout.width = "3rem"
        made.on_click(lambda _: self._go(by))
        return made

    def _go(self, by: int) -> None:
        if self.run.index is not None:
            self.run.index = (self.run.index + by) % len(self.run.options)


class TwoStudies(Tab):
    """Another study beside the one that is open."""

    title = "Two studies"
    SHOWN = (("Verdicts together", "figures.two_studies"), ("What agrees", "tables.between"))

    def __init__(self, listed: Mapping[str, Path]) -> None:
        super().__init__()
        self._listed = listed
        self.other = menu("Beside", self.changed, "44rem")
        self.page = box(self.other, self.what, self.pane.page)
        with self.held():
            self.other.options = [(labelled(name), path) for name, path in listed.items()]

    def offer(self, study: RecordedStudy) -> None:
        """One of the same name first: such a study can be compared, and not only looked at."""
        others = [name for name in self._listed if name != f"{study.path.parent.name}-{study.path.name}"]
        alike = [name for name in others if name.startswith(f"{study.name}-")]
        with self.held():
            ordered = list(dict.fromkeys([*alike, *others]))
            self.other.options = [(labelled(name), self._listed[name]) for name in ordered]
            self.other.value = self._listed[ordered[0]] if ordered else None

    def show(self, chosen: Chosen) -> None:
        """Both, as they were declared."""
        self._chosen = chosen
        if self.other.value is None:
            self.pane.show(None)
            return
        self.pane.show(View(Chosen(chosen.path), (Call(self.what.value, (Chosen(self.other.value),)),)))


def _offer(choice: Widget, options: Sequence[tuple[str, Any]]) -> None:
    """Other options; what is chosen stays where it still is one of them, else it is the first."""
    if list(choice.options) == list(options):
        return
    kept, values = choice.value, [value for _, value in options]
    choice.options = options
    choice.value = kept if kept in values else next(iter(values), None)


def _spaced(text: str) -> str:
    return text.replace("%", " %").replace("ms", " ms")
