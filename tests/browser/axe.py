"""The accessibility checker axe-core, downloaded from npm by version and digest into the checkout's cache."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from meshtrial import paths

VERSION = "4.14.1"
# As printed by `npm view axe-core@VERSION dist.integrity`.
INTEGRITY = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
KEPT = paths.CHECKOUT / ".cache" / f"axe-core-{VERSION}" / "axe.min.js"


class NotHereError(Exception):
    """axe-core cannot be had; the message says why."""


def source() -> str:
    """Return the script to inject into a page; it is downloaded if the cache does not have it."""
    if not KEPT.is_file():
        _fetch()
    return KEPT.read_text(encoding="utf-8")


def _fetch() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotHereError("axe-core comes from npm, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        packed = Path(folder) / f"axe-core-{VERSION}.tgz"
        if done.returncode or not packed.is_file():
            raise NotHereError(f"npm pack axe-core@{VERSION} failed: {done.stderr.strip()[-200:]}")
        digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != INTEGRITY:
            raise ValueError(f"axe-core {VERSION}: its digest is sha512-{digest}, not what is pinned here")
        with tarfile.open(packed) as made:
            member = made.extractfile("package/axe.min.js")
            assert member is not None
            text = member.read()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    partial = KEPT.with_suffix(".partial")
    partial.write_bytes(text)
    partial.replace(KEPT)
