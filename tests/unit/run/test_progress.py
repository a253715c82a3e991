"""The same lines on a terminal, in a log and in a notebook in use."""

import datetime
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from typing import Any, TextIO

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from meshtrial.run.progress import LineWriter, end_time, progress_to, span, transient

NOW = datetime.datetime(2026, 11, 23, 14, 20, tzinfo=datetime.UTC)  # a Monday
SAID = [
    "study data/studies/x, 3 runs",
    transient(0, 3, "20 s left, until about 14:20; block 1/1, 2000rps-10c, none"),
    transient(1, 3, "10 s left, until about 14:20; block 1/1, 2000rps-10c, sidecar"),
    "01-2-sidecar is INVALID: check rate",
    transient(3, 3, "3 runs in 21 s"),
]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7499, "2 h 04 min"), (275_000, "3 days 4 h")],
)
def test_spans_are_read_at_a_glance(seconds, text):
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(720, "14:32"), (12 * 3600, "Tuesday 02:20"), (8 * 86400, "2026-12-01 14:20")],
)
def test_the_end_is_a_time_of_day_with_the_day_where_it_is_another(seconds, text):
    assert end_time(seconds, NOW) == text


def test_a_log_has_every_line_as_it_came():
    out = io.StringIO()
    with progress_to(out) as tell:
        for line in SAID:
            tell(line)
    assert out.getvalue().splitlines() == SAID


@contextmanager
def terminal(columns: int) -> Iterator[tuple[TextIO, list[str]]]:
    """A real terminal: a stream to write to, and afterwards the lines on its screen."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    screen: list[str] = []
    with os.fdopen(slave, "w") as out:
        yield out, screen
    pieces = []
    with suppress(OSError):  # the other end is closed and everything was read
        while piece := os.read(master, 1 << 16):
            pieces.append(piece)
    os.close(master)
    # Apply the two control codes: carriage return, and erase to the end.
    line = ""
    for piece in re.split("(\r\n|\r|\x1b\\[K)", b"".join(pieces).decode()):
        if piece == "\r\n":
            screen.append(line)
            line = ""
        elif piece == "\r":
            assert len(line) < columns, "a line that wraps cannot be taken back"
            line = ""
        elif piece != "\x1b[K":
            assert "\x1b" not in piece
            line += piece
    screen.append(line)


@pytest.mark.parametrize(
    ("term", "columns", "lines", "seen"),
    [
        # One line is rewritten and permanent lines go above it; the last one remains as it ended.
        ("xterm", 120, SAID[:-1], [SAID[0], SAID[3], SAID[2]]),
        ("xterm", 40, SAID[:-1], [SAID[0], SAID[3], SAID[2]]),
        ("dumb", 80, SAID, SAID),  # a terminal that cannot rewrite gets a log
    ],
)
def test_what_a_terminal_shows_in_the_end(term, columns, lines, seen, monkeypatch):
    monkeypatch.setenv("TERM", term)
    with terminal(columns) as (out, screen), progress_to(out) as tell:
        for line in lines:
            tell(line)
    assert screen == [*seen, ""]


def test_a_narrow_terminal_keeps_how_far_it_is_and_how_long_it_takes(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with terminal(40) as (out, screen), progress_to(out) as tell:
        tell(SAID[1])
        out.write("\n")  # does not change the line
    assert screen[0] == "[0/3] 20 s left, until about 14:20; bl…"


def test_pieces_are_told_as_whole_lines():
    told: list[str] = []
    lines = LineWriter(told.append)
    for piece in ("[1/", "3] a\n[2/3] b\n\n", "the ", "end"):
        lines.write(piece)
        lines.flush()
    assert told == ["[1/3] a", "[2/3] b", ""]
    lines.close()
    assert told[3:] == ["the end"]


CELL = """
from meshtrial.run.progress import progress_to, transient
with progress_to() as tell:
    tell("study x & y")
    tell(transient(1, 4, "3 s left"))
    tell("01-2-sidecar is INVALID: <gate>")
    tell(transient(2, 4, "2 s left"))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(client: BlockingKernelClient, *, asks: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return a cell's output, from a front end that can ask the user or from one that cannot."""
    found: list[tuple[str, dict[str, Any]]] = []
    client.execute_interactive(
        CELL,
        allow_stdin=asks,
        timeout=60,
        output_hook=lambda message: found.append((message["msg_type"], message["content"])),
    )
    return [(kind, content) for kind, content in found if kind not in ("status", "execute_input")]


def test_where_a_person_looks_at_the_cell_it_has_one_output_a_bar_that_becomes_a_line(kernel):
    first, *others = outputs(kernel, asks=True)
    assert first[0] == "display_data"
    assert {kind for kind, _ in others} == {"update_display_data"}
    assert len({content["transient"]["display_id"] for _, content in [first, *others]}) == 1
    shown_last = [content["data"]["text/html"] for _, content in others]
    assert '<progress value="2" max="4"' in shown_last[-2]
    assert "progress" not in shown_last[-1]
    assert others[-1][1]["data"]["text/plain"].splitlines() == [
        "study x & y",
        "01-2-sidecar is INVALID: <gate>",
        "[2/4] 2 s left",
    ]
    assert "study x &amp; y" in shown_last[-1]
    assert "&lt;gate&gt;" in shown_last[-1]


def test_where_papermill_executes_the_cell_lines_are_printed(kernel):
    found = outputs(kernel, asks=False)
    assert {kind for kind, _ in found} == {"stream"}
    assert "".join(content["text"] for _, content in found).splitlines() == [
        "study x & y",
        "[1/4] 3 s left",
        "01-2-sidecar is INVALID: <gate>",
        "[2/4] 2 s left",
    ]
