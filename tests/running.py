"""Find running programs by their environment: those that a test started, and no others."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def running(environment: Mapping[str, object]) -> dict[int, str]:
    """Return the names of programs that were started with all of this in their environment, by process."""
    wanted = {f"{name}={value}".encode() for name, value in environment.items()}
    programs = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                programs[int(entry.name)] = (entry / "exe").readlink().name
    return programs
