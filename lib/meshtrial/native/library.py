"""The one library in C, which makes hundreds of sidecars start sooner: optional, as is a C compiler."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from meshtrial.native.places import build_dir, module_dir, run
from meshtrial.native.toolchain import say

_NAME = "forkserver"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
WITHOUT = "sidecars of scale-out will start one by one, which takes up to twice as long"


def forkserver() -> Path | None:
    """The fork server (``lib/native/forkserver``), or None where it was not built."""
    path = build_dir() / "lib" / f"{_NAME}.so"
    return path if path.is_file() else None


def build_forkserver(out: TextIO = sys.stdout) -> Path | None:
    """Compile it, in place whole; None, with a line that says why, where that is not possible."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        say(out, f"no C compiler on PATH: {WITHOUT}")
        return None
    target = build_dir() / "lib" / f"{_NAME}.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    source = module_dir() / _NAME / f"{_NAME}.c"
    with tempfile.TemporaryDirectory(dir=build_dir(), prefix="new-") as folder:
        made = Path(folder) / target.name
        answer = run((compiler, *_FLAGS, "-o", made, source))
        if answer.returncode:
            said = (answer.stderr.strip().splitlines() or ["no message"])[0]
            say(out, f"{Path(compiler).name} cannot build {source.name} ({said}): {WITHOUT}")
            return None
        made.replace(target)
    return target
