"""The explorer: widgets that choose, and views that follow. Views are made in :mod:`meshtrial.explore.views`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets

from meshtrial.api.study import RecordedStudy, recorded_studies
from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.explore.tabs import AllRuns, OneRun, Tab, TwoStudies, Verdicts
from meshtrial.explore.views import Chosen, forget, opened, said, typed
from meshtrial.explore.widgets import Choice, Html, Quiet, box, labelled, menu
from meshtrial.report.markup import part, style_sheet


def explore(study: str | Path | RecordedStudy = "") -> Explorer:
    """Look into recorded studies with widgets; JupyterLab shows them where a cell ends in this.

    Parameters
    ----------
    study : str, Path or RecordedStudy, optional
        What is open at first: a folder, a packed study, or one that is open already. Without it the first sample.

    Raises
    ------
    MeshtrialError
        Where there is no such study, or it cannot be read.

    Examples
    --------
    >>> import meshtrial as mt
    >>> explorer = mt.explore("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
    >>> explorer.study
    ambient_vs_no_mesh: none, none-aa, node-proxy; 24 runs, 34 verdicts
    """
    if isinstance(study, RecordedStudy):
        return Explorer(study.path)
    listed = recorded_studies()
    if not study and not listed:
        raise UsageError("no study is recorded here; `make study` records one")
    return Explorer(Path(study).expanduser().resolve() if study else next(iter(listed.values())))


class Explorer(Quiet):
    """A study chooser, its treatments and loads, and tabs that show them.

    Attributes
    ----------
    studies, treatments, loads : widgets
        What is chosen of all tabs.
    tabs : tuple of Tab
        ``verdicts``, ``runs``, ``run`` and ``two``; each has its own widgets.
    """

    def __init__(self, path: Path) -> None:
        forget()  # a study may have gone on since another explorer read it
        opened(path)
        self.quiet = True
        listed = recorded_studies()
        name = f"{path.parent.name}-{path.name}" if path.is_dir() else path.stem
        if path not in listed.values():
            # What was unpacked just now is listed under this name already, as a folder.
            listed = {name: path} | {other: one for other, one in listed.items() if other != name}
        self.studies = menu("Study", self._open, "44rem")
        self.studies.options = [(labelled(name), one) for name, one in listed.items()]
        self.studies.value = path
        self.about = Html()
        self.treatments = Choice("Treatments", self._show)
        self.loads = Choice("Loads", self._show)
        self.verdicts, self.runs, self.run, self.two = Verdicts(), AllRuns(), OneRun(), TwoStudies(listed)
        self.tabs: tuple[Tab, ...] = (self.verdicts, self.runs, self.run, self.two)
        self.pages = ipywidgets.Tab(children=[tab.page for tab in self.tabs], titles=[tab.title for tab in self.tabs])
        self.page = box(self.studies, self.about.widget, self.treatments.row, self.loads.row, self.pages)
        self.pages.selected_index = 0
        self.pages.observe(lambda _: self._show(), "selected_index")
        self.quiet = False
        self._open()

    @property
    def chosen(self) -> Chosen:
        """What the study chooser and the ticks say."""
        return Chosen(self.studies.value, self.treatments.ticked, self.loads.ticked)

    @property
    def study(self) -> RecordedStudy:
        """What is chosen now, for cells of one's own."""
        return self.chosen.study()

    def _open(self) -> None:
        """Another study: its treatments and loads, all of them."""
        if self.quiet:
            return
        for tab in self.tabs:
            tab.clear()  # nothing of the study before stands under the name of this one while it is read
        try:
            study = opened(self.studies.value)
        except MeshtrialError as error:
            self.about.show(said(str(error)))
            self.pages.layout.display = self.treatments.row.layout.display = self.loads.row.layout.display = "none"
            return
        self.pages.layout.display = None
        data = study.recorded
        fixed = {data.plan.study.baseline.name} | {row.baseline for row in data.verdicts}
        fixed |= {data.plan.study.twin.name} if data.plan.study.twin else set()
        with self.held():
            self.about.show(_about(study))
            self.treatments.offer(study.treatments, fixed)
            self.loads.offer([load.label for load in data.plan.study.loads], set())
            for tab in self.tabs:
                tab.offer(study)
        self._show()

    def _show(self) -> None:
        if not self.quiet:
            self.tabs[self.pages.selected_index or 0].show(self.chosen)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Widgets; for a page that has none (a notebook that papermill ran, as HTML) the views as they stand."""
        shown: dict[str, Any] = dict(self.page._repr_mimebundle_(include=include, exclude=exclude) or {})
        return shown | {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        tab = self.tabs[self.pages.selected_index or 0]
        return "\n".join([self.about.widget.value, *(html.widget.value for html in tab.parts)])

    def __repr__(self) -> str:
        return f"Explorer of {self.study!r}"


def _about(study: RecordedStudy) -> str:
    plan = study.recorded.plan.study
    runs = study.recorded.runs
    valid = sum(run.valid for run in runs)
    facts = (
        f"{len(runs)} runs, {valid} of them valid; {plan.blocks} blocks planned; backend {plan.backend}; app {plan.app}"
    )
    html = part("about", study.question, facts, typed(study.path))
    return str(part("fragment", html, style_sheet()))
