"""Tracked files contain no key or token, and a planted one is found. Asks the package index for the tool."""

import re
import subprocess
from pathlib import Path

from elsewhere.index import asked

from meshtrial import paths

MAKEFILE = (paths.CHECKOUT / "Makefile").read_text()


def secrets(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `make secrets` in the folder of another repository; skip if the index is unreachable."""
    recipe = re.search(r"^secrets:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    tool = re.search(r"^RUN_TOOL := (.*)$", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert tool is not None
    script = recipe[1].lstrip("\t@").replace("$(RUN_TOOL)", tool[1])
    script = script.replace("$(BIN)", str(paths.CHECKOUT / ".venv" / "bin"))
    script = script.replace("--cache-dir .cache/uv", f"--cache-dir {paths.CHECKOUT / '.cache' / 'uv'}")
    return asked(["bash", "-c", script], folder)


def test_no_secret_is_tracked():
    done = secrets(paths.CHECKOUT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_key_and_a_token_that_are_planted_are_found(tmp_path):
    # Joined here, so that this file itself contains no secret.
    planted = {"key.pem": "-----BEGIN {} PRIVATE KEY-----".format("EC"), "token.txt": "ghp" + "_" + "aB1" * 12}
    for name, text in planted.items():
        (tmp_path / name).write_text(text + "\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = secrets(tmp_path)
    assert done.returncode != 0
    for name in planted:
        assert name in done.stdout + done.stderr
