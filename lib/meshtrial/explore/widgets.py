"""The few widgets that the explorer is made of, laid out alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ipywidgets

from meshtrial.explore.views import View
from meshtrial.report.markup import part, style_sheet

Widget = Any  # ipywidgets has no types
# Names of choices stand under each other, from the left.
TITLED = {"description_width": "5.2rem"}


def row(*children: Widget) -> Widget:
    """Widgets on a line, that breaks where there is no room."""
    layout = ipywidgets.Layout(flex_flow="row wrap", align_items="center", width="100%", grid_gap="2px 14px")
    return ipywidgets.Box(children, layout=layout)


def box(*children: Widget) -> Widget:
    """Widgets below each other."""
    made = ipywidgets.VBox(children, layout=ipywidgets.Layout(width="100%", overflow="visible"))
    return made.add_class("mt-explorer")


class Quiet:
    """Whose widgets can be changed without being told of."""

    quiet = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Widgets change together, and are told about by whoever changes them."""
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False


class Html:
    """A place for a view."""

    def __init__(self) -> None:
        self.widget = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%", margin="0", overflow="visible"))

    def show(self, html: str) -> None:
        """Put something there; the same once more costs nothing."""
        self.widget.value = html


class Pane:
    """A view and, below it, the lines of Python that make it."""

    def __init__(self) -> None:
        self.shown, self.code = Html(), Html()
        self.page = box(self.shown.widget, self.code.widget)
        self.view: View | None = None

    def show(self, view: View | None) -> None:
        """Another view, or none."""
        self.view = view
        self.page.layout.display = "none" if view is None else None
        self.shown.show("" if view is None else view.html())
        self.code.show("" if view is None else str(part("fragment", part("python", view.code()), style_sheet())))


class Choice:
    """A line of names that can be ticked; what all others rest on stays."""

    def __init__(self, title: str, changed: Callable[[], None]) -> None:
        self.row = row()
        self._title = ipywidgets.Label(title, layout=ipywidgets.Layout(width="5.2rem"))
        self._changed = changed
        self.boxes: dict[str, ipywidgets.Checkbox] = {}
        self._fixed: set[str] = set()

    def offer(self, names: Sequence[str], fixed: set[str]) -> None:
        """Other names, all ticked; one alone is no choice."""
        self._fixed = fixed
        self.boxes = {}
        for name in names:
            made = ipywidgets.Checkbox(
                True, description=name, indent=False, disabled=name in fixed, layout=ipywidgets.Layout(width="auto")
            )
            made.tooltip = "always shown: others are compared with it" if name in fixed else ""
            made.observe(lambda _: self._changed(), "value")
            self.boxes[name] = made
        self.row.children = [self._title, *self.boxes.values()]
        self.row.layout.display = "none" if len(names) < 2 else None

    @property
    def ticked(self) -> tuple[str, ...]:
        """Names; empty where all are."""
        names = tuple(name for name, one in self.boxes.items() if one.value)
        return () if len(names) == len(self.boxes) else names or tuple(self._fixed)


def labelled(name: str) -> str:
    """``ambient_vs_no_mesh-20261121T211720Z-77c58730`` as ``ambient_vs_no_mesh · 2026-11-21 21:17 · 77c58730``."""
    match = re.fullmatch(r"(.+)-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ-(\w+)", name)
    return "{} · {}-{}-{} {}:{} · {}".format(*match.groups()) if match else name


def buttons(options: Sequence[tuple[str, Any]], changed: Callable[[], None]) -> Widget:
    """One of a few."""
    layout = ipywidgets.Layout(margin="8px 0 10px 0")
    made = ipywidgets.ToggleButtons(options=options, style={"button_width": "auto"}, layout=layout)
    made.observe(lambda _: changed(), "value")
    return made


def menu(title: str, changed: Callable[[], None], width: str = "22rem") -> Widget:
    """One of many."""
    layout = ipywidgets.Layout(width=width, max_width="98%")
    made = ipywidgets.Dropdown(description=title, layout=layout, style=TITLED)
    made.observe(lambda _: changed(), "value")
    return made


def slider(title: str, options: Sequence[tuple[str, Any]], changed: Callable[[], None]) -> Widget:
    """One of several that have an order; it is told when it is let go."""
    made = ipywidgets.SelectionSlider(
        options=options,
        description=title,
        continuous_update=False,
        layout=ipywidgets.Layout(width="27rem", max_width="98%"),
        style=TITLED,
    )
    made.observe(lambda _: changed(), "value")
    return made
