"""The image of the details apps from this machine's Debian packages, as their Containerfile makes it from a registry.

Every package that owns a loaded file is included whole, so files that Ruby loads later are there too.
"""

import shutil
from pathlib import Path

from testcluster.images import Image, shared_libraries
from testcluster.procs import call
from testcluster.settings import CHECKOUT, REGISTRY, ClusterError

_SERVICE = CHECKOUT / "lib" / "meshtrial" / "testbed" / "local" / "details" / "details.rb"
_INSIDE = "/usr/local/share/meshtrial/details.rb"
_LOADED = 'require "json"; require "webrick"; puts $LOADED_FEATURES.select { |path| path.start_with?("/") }'
_NOT_NEEDED = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/")


def webrick_details() -> Image | None:
    """Return the image, or None if Ruby with WEBrick is not installed from Debian's packages."""
    ruby = shutil.which("ruby")
    if ruby is None:
        return None
    try:
        packages = _owners([ruby, str(Path(ruby).resolve()), *call([ruby, "-e", _LOADED]).split()])
    except ClusterError:
        return None  # no webrick, or not of Debian's
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for name in call(["dpkg", "-L", *packages]).splitlines():
        path = Path(name)
        if name.startswith(_NOT_NEEDED):
            continue
        if path.is_symlink():
            links[name] = str(path.readlink())
        elif path.is_file():
            files[name] = path
    programs = [path for path in files.values() if path.read_bytes()[:4] == b"\x7fELF"]
    return Image(
        "webrick-details",
        f"{REGISTRY}/webrick-details:local",
        ["/usr/bin/ruby", _INSIDE],
        {**files, **shared_libraries(*programs), _INSIDE: _SERVICE},
        links=links,
        command=["--listen=0.0.0.0:9080"],
        user="65532:65532",
    )


def _owners(paths: list[str]) -> list[str]:
    """Return the Debian packages that contain these files."""
    lines = call(["dpkg", "-S", *paths]).splitlines()
    return sorted({package for line in lines for package in line.rpartition(": ")[0].split(", ")})
