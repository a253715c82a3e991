"""`meshtrial compare` as a command: files that cannot be written, arguments in the wrong place."""

import io
import os

import pytest

from meshtrial import cli

ROWS = [f"{name}{k},{name},p50_ms,{level + k / 100}" for name, level in (("none", 1), ("istio", 2)) for k in range(6)]


@pytest.fixture
def unread():
    """Return standard output as a command has it, for a pipe whose reader has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        yield cli.Pipe(stream)


@pytest.fixture
def arguments(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(["run,treatment,response,value", *ROWS]))
    wanted = ("--json", tmp_path / "o.json", "--html", tmp_path / "o.html", "--summary", tmp_path / "o.md")
    return ["compare", "--table", str(tmp_path / "t.csv"), "--baseline", "none", *map(str, wanted)]


@pytest.mark.parametrize(("gate", "code"), [([], 0), (["--require", "slower"], 0), (["--fail-on", "slower"], 4)])
def test_files_and_gate_do_not_depend_on_a_reader(arguments, unread, tmp_path, gate, code):
    err = io.StringIO()
    assert cli.main([*arguments, *gate], unread, err) == code
    assert err.getvalue().count("\n") == (1 if code else 0)
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "o.json", "o.html", "o.md"}


def test_a_file_that_cannot_be_written_is_named_below_the_verdicts(arguments, tmp_path):
    (tmp_path / "o.html").mkdir()
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(arguments, out, err) == 2
    assert "slower (material)" in out.getvalue()
    assert err.getvalue().startswith(f"meshtrial compare: {tmp_path}/o.html: cannot be written (Is a directory); ")


def test_files_without_their_option_are_told_where_they_go(tmp_path):
    err = io.StringIO()
    assert cli.main(["compare", f"{tmp_path}/none=base.json", f"{tmp_path}/mesh=a.json"], io.StringIO(), err) == 2
    assert all(option in err.getvalue() for option in ("--baseline", "--treatment"))
