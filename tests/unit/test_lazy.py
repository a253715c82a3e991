"""Results are compared without polars; a command that needs it names the extra before it starts."""

import subprocess
import sys

import pytest

from meshtrial import cli, paths
from meshtrial.errors import MissingToolError

FORTIO = paths.CHECKOUT / "tests" / "fixtures" / "load" / "fortio-1.3.json"
WITHOUT_POLARS = """\
import sys
sys.modules["polars"] = None  # as if it were not installed
from meshtrial import cli
sys.exit(cli.main(sys.argv[1:], sys.stdout, sys.stderr))"""


def test_results_are_compared_and_written_without_polars(tmp_path):
    for number, name in enumerate(("a/1", "b/1", "a/2", "b/2"), start=1):  # runs one after the other
        file = tmp_path / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(FORTIO.read_text().replace("T09:30:00", f"T09:3{number}:00"))
    asked = ["compare", "--baseline", "a/*.json", "--treatment", "b/*.json", "--sample-floor", "1"]
    written = ["--json", "out.json", "--summary", "out.md", "--junit", "out.xml", "--bencher", "bencher.json"]
    command = [sys.executable, "-c", WITHOUT_POLARS, *asked, *written, "--fail-on", "slower"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "p50 latency" in done.stdout
    assert all((tmp_path / name).stat().st_size for name in written[1::2])


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name not in ("doctor", "open", "compare", "calls")])
def test_a_command_names_what_it_needs_before_it_begins(name, capsys, monkeypatch):
    for module in ("polars", "papermill", "matplotlib", "kubernetes", "cryptography"):
        monkeypatch.setitem(sys.modules, module, None)
    assert cli.main([name], sys.stdout, sys.stderr) == MissingToolError.exit_code
    assert " is not installed; " in capsys.readouterr().err
