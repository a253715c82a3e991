"""The seal: which sources of the test cluster its own suite last passed with.

``make test-testcluster`` writes it. While it fits, `make test-cluster` takes the test cluster for granted; when it does
not, it runs the suite of the test cluster as well. Every session checks what it leaves on the machine.
"""

import hashlib
from pathlib import Path

from testcluster.settings import HERE

SEAL = "seal"
# These files change nothing that runs.
_ASIDE = (SEAL, "README.md")


def digest(folder: Path = HERE) -> str:
    """Digest of every source below a folder, by name and content."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        if str(inside) not in _ASIDE and "__pycache__" not in inside.parts:
            found.update(f"{inside}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


def fits(folder: Path = HERE) -> bool:
    """Whether the suite passed with exactly these sources."""
    seal = folder / SEAL
    return seal.exists() and seal.read_text().strip() == digest(folder)


def write(folder: Path = HERE) -> None:
    """Say that it did."""
    (folder / SEAL).write_text(digest(folder) + "\n")
