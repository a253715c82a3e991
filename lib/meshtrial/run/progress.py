"""Progress as it is best read where it is read: one changing line on a terminal, lines in a log, a bar in JupyterLab.

Whoever runs a study tells lines of text. One that begins with ``[done/total]`` is for the moment: the next one takes
its place where that can be. Every other line stays. As text they also come through a notebook that papermill
executes, whose printed output is then shown by whoever reads it, by the same rule.
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
_PASSING = re.compile(r"\[(\d+)/(\d+)\] ")
_CLEAR = "\r\x1b[K"  # to the left, and nothing behind


def passing(done: int, total: int, text: str) -> str:
    """A line for the moment."""
    return f"[{done}/{total}] {text}"


def span(seconds: float) -> str:
    """``45 s``, ``3 min 20 s``, ``2 h 05 min``, ``3 days 4 h``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} days {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def until(seconds: float, now: datetime.datetime | None = None) -> str:
    """The time of day at which so many seconds are over, with the day where it is another one."""
    now = now or datetime.datetime.now().astimezone()
    end = now + datetime.timedelta(seconds=seconds)
    if end.date() == now.date():
        return f"{end:%H:%M}"
    return f"{end:%A %H:%M}" if end - now < datetime.timedelta(days=6) else f"{end:%Y-%m-%d %H:%M}"


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[ProgressCallback]:
    """What to tell lines to, so that they suit the stream; without one, standard output or a person's notebook cell."""
    out = sys.stdout if stream is None else stream
    teller: _Bar | _Terminal
    if stream is None and _in_interactive_notebook():
        teller = _Bar()
    elif _can_rewrite(out):
        teller = _Terminal(out)
    else:
        yield lambda line: print(line, file=out, flush=True)
        return
    try:
        yield teller.tell
    finally:
        teller.end()


class Lines:
    """A file that tells what is written to it line by line."""

    def __init__(self, tell: ProgressCallback) -> None:
        self._tell = tell
        self._begun = ""

    def write(self, text: str) -> None:
        """Tell the lines that are whole."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._tell(line)

    def flush(self) -> None:
        """Nothing: a line is told as soon as it is whole."""

    def close(self) -> None:
        """Tell what was begun."""
        if self._begun:
            self.write("\n")


class _Terminal:
    """The last line of a terminal changes; what stays goes above it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def tell(self, line: str) -> None:
        if _PASSING.match(line):
            self._last = line
            self._out.write(_CLEAR + self._fitting(line))
        else:
            self._out.write(f"{_CLEAR}{line}\n{self._fitting(self._last)}")
        self._out.flush()

    def end(self) -> None:
        # The last state stays, whole, whatever it ended with.
        if self._last:
            self._out.write(f"{_CLEAR}{self._last}\n")
            self._out.flush()

    def _fitting(self, line: str) -> str:
        # A line that wraps cannot be taken back. The last column stays free: some terminals wrap when it is written.
        try:
            width = os.get_terminal_size(self._out.fileno()).columns or 80
        except OSError:
            width = 80
        return line if len(line) < width else line[: max(0, width - 2)] + "…"


class _Bar:
    """One output of a cell: the lines that stay, and below them a bar that becomes a line at the end."""

    def __init__(self) -> None:
        self._stay: list[str] = []
        self._last = ""
        self._handle: Any = None

    def tell(self, line: str) -> None:
        if _PASSING.match(line):
            self._last = line
        else:
            self._stay.append(line)
        self._show(running=True)

    def end(self) -> None:
        self._show(running=False)

    def _show(self, running: bool) -> None:
        from IPython.display import display

        lines = [*self._stay, *([self._last] if self._last else [])]
        if not lines:
            return
        rows = [html.escape(line) for line in lines]
        counted = _PASSING.match(self._last)
        if counted and running:
            done, total = counted.groups()
            rows[-1] = f'<progress value="{done}" max="{total}" style="width:20em"></progress> {rows[-1]}'
        data = {"text/plain": "\n".join(lines), "text/html": "".join(f"<div>{row}</div>" for row in rows)}
        if self._handle is None:
            self._handle = cast(Any, display)(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _can_rewrite(out: TextIO) -> bool:
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _in_interactive_notebook() -> bool:
    """Whether this runs in a notebook whose front end can be asked questions: JupyterLab's can, papermill's cannot."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return False
    return bool((kernel.get_parent().get("content") or {}).get("allow_stdin"))
