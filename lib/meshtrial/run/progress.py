"""Progress lines, shown as suits their reader: a line that changes on a terminal, lines in a log, a bar in JupyterLab.

A study reports lines of text. A line that begins with ``[done/total]`` is transient: where possible the next one
replaces it. All other lines stay. Lines printed by a notebook that papermill executes are shown by the same rule.
"""

import datetime
import html
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

ProgressCallback = Callable[[str], None]
_TRANSIENT = re.compile(r"\[(\d+)/(\d+)\] ")
_CLEAR = "\r\x1b[K"  # return to the left and erase the line


def transient(done: int, total: int, text: str) -> str:
    """Return a line that the next one may replace."""
    return f"[{done}/{total}] {text}"


def span(seconds: float) -> str:
    """Return ``45 s``, ``3 min 20 s``, ``2 h 05 min`` or ``3 days 4 h``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} days {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def end_time(seconds: float, now: datetime.datetime | None = None) -> str:
    """Return the time of day after ``seconds``, with the weekday or date unless it is today."""
    now = now or datetime.datetime.now().astimezone()
    end = now + datetime.timedelta(seconds=seconds)
    if end.date() == now.date():
        return f"{end:%H:%M}"
    return f"{end:%A %H:%M}" if end - now < datetime.timedelta(days=6) else f"{end:%Y-%m-%d %H:%M}"


@contextmanager
def progress_to(stream: TextIO | None = None) -> Iterator[ProgressCallback]:
    """Yield a callback that shows lines on ``stream``, by default standard output or an interactive notebook."""
    out = sys.stdout if stream is None else stream
    display: _Bar | _Terminal
    if stream is None and _in_interactive_notebook():
        display = _Bar()
    elif out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        display = _Terminal(out)
    else:
        yield lambda line: print(line, file=out, flush=True)
        return
    try:
        yield display.show
    finally:
        display.end()


class LineWriter:
    """A file object that passes what is written to it on to a callback, line by line."""

    def __init__(self, progress: ProgressCallback) -> None:
        self._progress = progress
        self._rest = ""

    def write(self, text: str) -> None:
        """Pass on complete lines."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._progress(line)

    def flush(self) -> None:
        """Do nothing: complete lines are passed on at once."""

    def close(self) -> None:
        """Pass on an incomplete last line."""
        if self._rest:
            self.write("\n")


class _Terminal:
    """The last line of a terminal changes; permanent lines go above it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def show(self, line: str) -> None:
        if _TRANSIENT.match(line):
            self._last = line
            self._out.write(_CLEAR + self._fitting(line))
        else:
            self._out.write(f"{_CLEAR}{line}\n{self._fitting(self._last)}")
        self._out.flush()

    def end(self) -> None:
        if self._last:
            self._out.write(f"{_CLEAR}{self._last}\n")
            self._out.flush()

    def _fitting(self, line: str) -> str:
        # A wrapped line cannot be erased. The last column stays free because some terminals wrap once it is written.
        try:
            width = os.get_terminal_size(self._out.fileno()).columns or 80
        except OSError:
            width = 80
        return line if len(line) < width else line[: max(0, width - 2)] + "…"


class _Bar:
    """One output of a notebook cell: permanent lines, and below them a bar that becomes a line at the end."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._last = ""
        self._handle: Any = None

    def show(self, line: str) -> None:
        if _TRANSIENT.match(line):
            self._last = line
        else:
            self._lines.append(line)
        self._update(running=True)

    def end(self) -> None:
        self._update(running=False)

    def _update(self, running: bool) -> None:
        from IPython.display import display

        lines = [*self._lines, *([self._last] if self._last else [])]
        if not lines:
            return
        rows = [html.escape(line) for line in lines]
        counted = _TRANSIENT.match(self._last)
        if counted and running:
            done, total = counted.groups()
            rows[-1] = f'<progress value="{done}" max="{total}" style="width:20em"></progress> {rows[-1]}'
        data = {"text/plain": "\n".join(lines), "text/html": "".join(f"<div>{row}</div>" for row in rows)}
        if self._handle is None:
            self._handle = cast(Any, display)(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_interactive_notebook() -> bool:
    """Return whether the notebook's front end accepts input: JupyterLab's does, papermill's does not."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return False
    return bool((kernel.get_parent().get("content") or {}).get("allow_stdin"))
