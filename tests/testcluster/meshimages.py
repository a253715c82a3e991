"""Images and charts of other projects' meshes: a folder of archives, named by ``MESHTRIAL_MESH_IMAGES``.

``MESHTRIAL_MESH_CHARTS`` names charts in other folders. The cluster pulls nothing, so what no package registry
carries (Kuma, Linkerd, ztunnel, ...) comes from such a folder. Archives are checked before anything starts; otherwise a
pod would find a truncated or unnamed one minutes later. Compressed ones are unpacked once, into the cluster's home.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from testcluster.images import Hashes
from testcluster.settings import ClusterError, Layout, image_architecture, in_ci

VARIABLE = "MESHTRIAL_MESH_IMAGES"
CHARTS = "MESHTRIAL_MESH_CHARTS"  # paths of further charts, as in PATH
SUMS = "SHA256SUMS"
_ENDINGS = (".tar", ".tar.gz", ".tar.xz")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Needs:
    """The parts of a mesh: the last part of its images' names, and its charts."""

    images: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()


# Meshes whose images are not built here. Unlisted meshes need nothing: no mesh, the reference sidecar, Istio.
MESHES = {
    "istio-ambient": Needs(("ztunnel", "install-cni")),
    "linkerd": Needs(("controller", "proxy"), ("linkerd-crds", "linkerd-control-plane")),
    "kuma": Needs(("kuma-cp", "kuma-dp", "kuma-init"), ("kuma",)),
    "consul": Needs(("consul", "consul-k8s-control-plane", "consul-dataplane"), ("consul",)),
}


@dataclass(frozen=True)
class Folder:
    """Image archives, and charts by their own names."""

    path: Path
    archives: tuple[Path, ...]
    charts: Mapping[str, Path]


def find_folder(environ: Mapping[str, str] = os.environ) -> Folder | None:
    """Find what the variable names; None if it is not set, ClusterError if there is no such folder."""
    if not environ.get(VARIABLE):
        return None
    path = Path(environ[VARIABLE]).expanduser().absolute()
    if not path.is_dir():
        raise ClusterError(f"{VARIABLE}={path} is not a folder; unset it, or name one with image archives")
    archives = tuple(
        item
        for place in (path, path / "images")
        if place.is_dir()
        for item in sorted(place.iterdir())
        if item.name.endswith(_ENDINGS)
    )
    if not archives:
        raise ClusterError(f"{VARIABLE}={path}: no image archive ({', '.join(_ENDINGS)}) there or in its images/")
    charts: dict[str, Path] = {}
    further = [Path(text).expanduser().absolute() for text in environ.get(CHARTS, "").split(os.pathsep) if text]
    if gone := [item for item in further if not item.exists()]:
        raise ClusterError(f"{CHARTS}: {gone[0]} is not there; unset it, or name a chart, a folder or a .tgz")
    for item in [*sorted((path / "charts").glob("*")), *further]:
        if item.is_dir() or item.name.endswith(".tgz"):
            name = _chart_name(item)
            if name in charts:
                raise ClusterError(f"{charts[name]} and {item} are both the chart {name}; remove one")
            charts[name] = item
    return Folder(path, archives, charts)


def _chart_name(path: Path) -> str:
    try:
        if path.is_dir():
            text = (path / "Chart.yaml").read_bytes()
        else:
            with tarfile.open(path) as archive:
                names = [name for name in archive.getnames() if re.fullmatch(r"[^/]+/Chart\.yaml", name)]
                text = _content(archive, names[0])
        return str(yaml.safe_load(text)["name"])
    except (OSError, EOFError, LookupError, TypeError, tarfile.TarError, yaml.YAMLError):
        raise ClusterError(f"{path} is not a Helm chart: it has no Chart.yaml with a name") from None


def _check_sums(folder: Folder, hashes: Hashes) -> None:
    for place in sorted({archive.parent for archive in folder.archives}):
        sums = place / SUMS
        if not sums.exists():
            continue
        pairs = [line.split(maxsplit=1) for line in sums.read_text().splitlines() if line.strip()]
        wanted = {pair[1].strip().removeprefix("*").removeprefix("./"): pair[0] for pair in pairs if len(pair) == 2}
        here = {archive.name: archive for archive in folder.archives if archive.parent == place}
        for name in wanted:
            if name.endswith(_ENDINGS) and name not in here:
                raise ClusterError(f"{sums} names {name}, which is not there; fetch it, or take its line out")
        for name, archive in here.items():
            if name not in wanted:
                raise ClusterError(f"{archive} is not in {SUMS} beside it; add it (sha256sum), or remove the archive")
            if hashes.of(archive) != wanted[name].lower():
                raise ClusterError(f"{archive} is not what {SUMS} says: changed or cut short; fetch it again")


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(name)
    return found.read()


def full_name(reference: str) -> str:
    """Write a reference as nodes know it: ``kuma/kuma-cp:2`` is ``docker.io/kuma/kuma-cp:2``."""
    first, slash, _ = reference.partition("/")
    if not slash:
        return f"docker.io/library/{reference}"
    return reference if "." in first or ":" in first or first == "localhost" else f"docker.io/{reference}"


def references(path: Path, shown: Path) -> tuple[str, ...]:
    """Return the references in an uncompressed docker archive whose parts are all present.

    ClusterError names ``shown``, the path that the user knows, and why it is no image archive.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            names = {member.name.removeprefix("./"): member.name for member in archive.getmembers()}

            def read(name: str) -> Any:
                return json.loads(_content(archive, names[name]))

            if "manifest.json" not in names:
                raise ClusterError(f"{shown} holds no image: it has no manifest.json; see 'docker save'")
            found = _images(read, names)
    except tarfile.ReadError as error:
        cut = "unexpected end" in str(error)
        raise ClusterError(
            f"{shown} is cut short; fetch or save it again" if cut else f"{shown} is not a tar archive ({error})"
        ) from None
    except _MissingPartError as error:
        raise ClusterError(f"{shown} lacks {error} of an image that it names; fetch or save it again") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ClusterError(f"{shown}: its list of images is not readable ({error!r}); save it again") from None
    machines = {architecture for _, architecture in found}
    if not found:
        raise ClusterError(f"{shown} holds no image; see 'docker save'")
    if image_architecture() not in machines:
        raise ClusterError(f"{shown} is for {', '.join(sorted(machines))}; this machine runs {image_architecture()}")
    named = tuple(reference for reference, architecture in found if reference and architecture == image_architecture())
    if not named:
        raise ClusterError(f"{shown} holds an image without a name; save it by name and tag, not by its id")
    return named


class _MissingPartError(Exception):
    """Return a file that the archive's own list names and that is missing."""


def _images(read: Callable[[str], Any], names: Collection[str]) -> list[tuple[str, str]]:
    """Reference and architecture of every image in an archive."""
    found = []
    for image in read("manifest.json"):
        for part in (image["Config"], *image["Layers"]):
            if part not in names:
                raise _MissingPartError(part)
        architecture = str(read(image["Config"]).get("architecture", ""))
        found += [(full_name(tag) if tag else "", architecture) for tag in image.get("RepoTags") or [""]]
    return found


def _opened(archive: Path) -> IO[bytes]:
    """Open an archive as a tar."""
    known: dict[str, Callable[[Path], Any]] = {".xz": lzma.open, ".gz": gzip.open}
    opened: IO[bytes] = known.get(archive.suffix, lambda path: path.open("rb"))(archive)
    return opened


def _unpack(archive: Path, target: Path) -> tuple[str, ...]:
    """Unpack an archive; it appears under its name only when it is complete and checked."""
    partial = target.with_suffix(".partial")
    try:
        with _opened(archive) as source, partial.open("wb") as copy:
            shutil.copyfileobj(source, copy, _CHUNK)
        found = references(partial, archive)
        partial.replace(target)
        return found
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ClusterError(f"{archive} cannot be unpacked: {error}; fetch or save it again") from None
    except OSError as error:
        raise ClusterError(f"{archive} cannot be unpacked into {target.parent}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class MeshImages:
    """Images and charts of a cluster: archives for its nodes, their references, and charts by name."""

    folder: str = ""
    archives: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    charts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, layout: Layout) -> MeshImages:
        """Return the running cluster's images and charts; empty if none runs."""
        with contextlib.suppress(FileNotFoundError):
            content = json.loads((layout.run / "mesh-images.json").read_text())
            for name in ("archives", "references"):
                content[name] = tuple(content[name])
            return cls(**content)
        return cls()

    def save(self, layout: Layout) -> None:
        """Keep it as long as the cluster."""
        (layout.run / "mesh-images.json").write_text(json.dumps(asdict(self), indent=1))

    def reference(self, image: str) -> str:
        """Find the one reference whose name ends with `image`: ``kuma-cp`` is ``x.test/kuma/kuma-cp:2.14.3``."""
        found = [name for name in self.references if _short(name) == image]
        if len(found) != 1:
            what = f"{len(found)} images" if found else "no image"
            raise ClusterError(f"{self.folder or VARIABLE}: {what} by the name {image}: {', '.join(found) or 'none'}")
        return found[0]

    def lacks(self, mesh: str) -> list[str]:
        """Return the missing images and charts of a mesh."""
        needs = MESHES.get(mesh, Needs())
        names = {_short(name) for name in self.references}
        absent = [f"image {name}" for name in needs.images if name not in names]
        return absent + [f"chart {name}" for name in needs.charts if name not in self.charts]

    def verdict(self, mesh: str, environ: Mapping[str, str] = os.environ) -> tuple[bool, str]:
        """Whether a test of a mesh must fail rather than be skipped, and why it cannot run (empty: it can)."""
        absent = self.lacks(mesh)
        if not absent:
            return False, ""
        if not self.folder and not environ.get(VARIABLE):
            return False, f"{mesh}: its images are not here; {VARIABLE} names a folder of them"
        where = self.folder or "the running cluster, which was started without the folder,"
        reason = f"{mesh}: {where} has no {', no '.join(absent)}"
        return in_ci(environ) and bool(environ.get(VARIABLE)), reason


def _short(reference: str) -> str:
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def prepare(
    layout: Layout,
    own: Mapping[str, str],
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> MeshImages:
    """Check the folder and unpack what is new in it; quick when nothing is.

    Unpacked archives are kept by content in the home. None of the cluster's ``own`` images, by name, may be replaced.
    """
    folder = find_folder(environ)
    if folder is None:
        return MeshImages()
    store = layout.home / "mesh-images"
    store.mkdir(parents=True, exist_ok=True)
    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hashes = Hashes(store / "hashes.json")
        _check_sums(folder, hashes)
        index_path = store / "index.json"
        index: dict[str, list[str]] = json.loads(index_path.read_text()) if index_path.exists() else {}

        def one(archive: Path) -> tuple[Path, str, tuple[str, ...]]:
            digest = hashes.of(archive)
            # A node has its own /run, so an archive there would be invisible.
            plain = archive.suffix == ".tar" and not archive.resolve().is_relative_to("/run")
            target = archive if plain else store / f"{archive.name.partition('.tar')[0]}-{digest[:16]}.tar"
            if digest in index and target.exists():
                return target, digest, tuple(index[digest])
            say(f"mesh images: reading {archive.name}")
            return target, digest, references(archive, archive) if plain else _unpack(archive, target)

        with ThreadPoolExecutor(max_workers=2) as pool:
            try:
                done = list(pool.map(one, folder.archives))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        kept = {target for target, _, _ in done}
        for old in store.glob("*.tar"):
            if old not in kept:
                old.unlink()
        index_path.write_text(json.dumps({digest: list(names) for _, digest, names in done}, indent=1))
        hashes.save()
    owners: dict[str, Path] = {}
    for archive, (_, _, names) in zip(folder.archives, done, strict=True):
        for name in names:
            if name in own.values():
                raise ClusterError(
                    f"{archive} holds {name}, which is an image of the cluster itself; give it another name"
                )
            if name in owners:
                raise ClusterError(f"{owners[name]} and {archive} both hold {name}; remove one")
            owners[name] = archive
    return MeshImages(
        str(folder.path),
        tuple(str(target) for target, _, _ in done),
        tuple(owners),
        {name: str(path) for name, path in folder.charts.items()},
    )
