"""The command line lists every command without loading one, and loads the one that is asked for."""

import os
import re
import subprocess
import sys

import pytest
from commandline import SAMPLE, meshtrial

from meshtrial import cli, paths
from meshtrial.design.studies import STUDIES
from meshtrial.errors import Exit, MeshtrialError

HEAVY = {"numpy", "polars", "scipy", "matplotlib", "yaml"}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_says_how_it_is_used(name, capsys):
    assert meshtrial(name, "--help")[0] == 0
    assert f"usage: meshtrial {name}" in capsys.readouterr().out


def test_help_lists_all_commands_with_a_line_each(capsys):
    assert meshtrial("--help")[0] == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, text in cli.COMMANDS.items():
        assert f"{name} {text}" in shown


@pytest.mark.parametrize("given", [("--help",), ("run", "--help")], ids=" ".join)
def test_help_has_every_exit_code_with_its_meaning(given, capsys):
    assert meshtrial(*given)[0] == 0
    table = capsys.readouterr().out.partition("\nexit codes:\n")[2]
    assert re.findall(r"^  (\d+)", table, re.M) == [str(code.value) for code in Exit]
    assert all(code.meaning in " ".join(table.split()) for code in Exit)
    assert {error.exit_code for error in (MeshtrialError, *MeshtrialError.__subclasses__())} <= {*Exit}


def test_the_targets_that_run_a_study_succeed_where_verdicts_were_given():
    recipes = re.findall(r"\$\(BIN\)/meshtrial (run [^|\n]+)", (paths.CHECKOUT / "Makefile").read_text())
    assert len(recipes) == 2  # study and studies
    for recipe in recipes:
        words = re.sub(r"\$\(STUDY\)|\$\$study", "rollout", recipe)
        words = re.sub(r"\$\((ARGS|PROFILED)\)", "", words).split()
        given = cli.parser("run").parse_args(words)
        assert (given.study, given.allow_excluded) == ("rollout", True)


@pytest.mark.parametrize("given", [["sutdy"], ["--sutdy"]])
def test_without_a_known_command_it_is_bad_usage(given, capsys):
    assert meshtrial(*given)[0] == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("meshtrial")
    assert line.endswith("--help`")


HELP, TABLE = (["compare", "--help"], 0), (["status"], 0)
VERDICT, REFUSAL = (["verify", SAMPLE], 0), (["verify", "/nonexistent"], 2)
# A command, the streams that its reader has closed, and whether Python buffers lines until the end.
UNREAD = [
    *((HELP, closed, True) for closed in ("stdout", "stderr", "both", "never open")),
    *((TABLE, "stdout", True), (TABLE, "stdout", False), (VERDICT, "stdout", False), (VERDICT, "never open", True)),
    *((REFUSAL, "stderr", True), (REFUSAL, "both", False)),
]


@pytest.mark.parametrize(("command", "closed", "buffered"), UNREAD)
def test_a_reader_that_has_gone_changes_nothing(command, closed, buffered):
    given, code = command
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "meshtrial", *map(str, given)]
    if closed == "never open":
        argv = ["sh", "-c", 'exec "$@" >&-', "sh", *argv]
    out = writing if closed in ("stdout", "both") else subprocess.PIPE
    err = writing if closed in ("stderr", "both") else subprocess.PIPE
    environment = os.environ | {"MESHTRIAL_DATA": str(SAMPLE.parents[1]), "PYTHONUNBUFFERED": "" if buffered else "1"}
    done = subprocess.run(argv, stdout=out, stderr=err, text=True, check=False, env=environment)
    os.close(writing)
    assert done.returncode == code
    assert [line for line in (done.stderr or "").splitlines() if not line.startswith("meshtrial verify: ")] == []


def test_what_nobody_reads_is_dropped_and_the_work_goes_on():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        pipe = cli.Pipe(stream)
        for _ in range(3):
            print("x" * 100_000, file=pipe, flush=True)
        assert pipe.fileno() == stream.fileno()


def test_alone_it_says_what_to_do_first():
    code, out, _ = meshtrial()
    assert code == 0
    first = [line.split("  ")[0].split() for line in out.splitlines()[:3]]
    assert first == [["meshtrial", "doctor"], ["meshtrial", "run", "ambient_vs_no_mesh"], ["meshtrial", "open"]]
    assert {verb for _, verb, *_ in first} <= set(cli.COMMANDS)
    assert "ambient_vs_no_mesh" in STUDIES


@pytest.mark.parametrize("given", [[], ["--help"], ["open"]], ids=" ".join)
def test_what_is_asked_first_loads_nothing_that_takes_time(given, tmp_path):
    code = (
        f"import io, sys\nfrom meshtrial import cli\ncli.main({given!r}, io.StringIO(), io.StringIO())\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    (tmp_path / "x.html").touch()
    environment = os.environ | dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"), "")
    environment |= {"MESHTRIAL_REPORTS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.strip() == "[]"
