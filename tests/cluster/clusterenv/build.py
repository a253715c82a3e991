"""Building what the cluster runs from the Go module proxy, into the cluster home, never into the checkout.

Every program is keyed by its recipe, its go.mod and its go.sum: what has not changed is not built again, and nothing
but the stamp beside the program is asked. Versions are pinned by the go.mod and go.sum files under ``go/``; nothing is
tidied or resolved here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterenv.images import build_images
from clusterenv.settings import (
    CHECKOUT,
    HELM_VERSION,
    HERE,
    ISTIO_HUB,
    ISTIO_REVISION,
    ISTIO_TAG,
    ISTIO_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    ClusterError,
    Layout,
)

Say = Callable[[str], None]
_RECIPE = 1  # raised when the way programs are built changes
_GO_NEEDED = (1, 26)
_KUBE = "k8s.io/component-base/version"
_ISTIO = "istio.io/istio/pkg/version"


@dataclass(frozen=True)
class Program:
    """One program: the module folder under ``go/``, the package, and how it is linked."""

    name: str
    module: str
    package: str = "."
    tags: str = ""
    values: Mapping[str, str] | None = None
    also: tuple[str, ...] = ()

    def command(self, go: Path, output: Path) -> list[str]:
        """The compiler's command line."""
        flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in (self.values or {}).items())])
        tags = [f"-tags={self.tags}"] if self.tags else []
        head = [str(go), "build", "-mod=readonly", "-trimpath", "-buildvcs=false", *tags]
        return [*head, f"-ldflags={flags}", "-o", str(output), self.package]

    def key(self) -> str:
        """Changes exactly when the program would."""
        folder = HERE / "go" / self.module
        digest = hashlib.sha256(repr((_RECIPE, self.command(Path("go"), Path(self.name)), self.also)).encode())
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()


_major, _minor, _ = KUBERNETES_VERSION.split(".")
_ISTIO_VALUES = {
    f"{_ISTIO}.buildVersion": ISTIO_VERSION,
    f"{_ISTIO}.buildGitRevision": ISTIO_REVISION,
    f"{_ISTIO}.buildTag": ISTIO_TAG,
    f"{_ISTIO}.buildHub": ISTIO_HUB,
    f"{_ISTIO}.buildStatus": "Clean",
}
# Two modules and not one for each program: within a module the versions agree, so the packages that programs share are
# compiled once. etcd is the version that this Kubernetes asks for itself; nothing in that module is raised by it.
PROGRAMS = (
    Program(
        "hyperkube",
        "kube",
        # Without these the API server says v0.0.0, and every client that checks for skew refuses it.
        values={
            f"{_KUBE}.gitVersion": f"v{KUBERNETES_VERSION}",
            f"{_KUBE}.gitMajor": _major,
            f"{_KUBE}.gitMinor": _minor,
            f"{_KUBE}.gitTreeState": "clean",
            f"{_KUBE}.gitCommit": "0" * 40,
            f"{_KUBE}.buildDate": "2026-01-01T00:00:00Z",
        },
        also=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
    ),
    Program("etcd", "kube", "go.etcd.io/etcd/server/v3"),
    Program(
        "pilot-discovery",
        "tools",
        "istio.io/istio/pilot/cmd/pilot-discovery",
        tags="vtprotobuf,disable_pgv",
        values=_ISTIO_VALUES,
    ),
    Program(
        "pilot-agent",
        "tools",
        "istio.io/istio/pilot/cmd/pilot-agent",
        tags="agent,disable_pgv,grpcnotrace,retrynotrace",
        values=_ISTIO_VALUES,
    ),
    Program(
        "istioctl", "tools", "istio.io/istio/istioctl/cmd/istioctl", tags="vtprotobuf,disable_pgv", values=_ISTIO_VALUES
    ),
    Program(
        "helm",
        "tools",
        "helm.sh/helm/v3/cmd/helm",
        values={"helm.sh/helm/v3/internal/version.version": f"v{HELM_VERSION}"},
    ),
    Program("coredns", "tools", "./coredns"),
    Program(
        "kwok",
        "tools",
        "sigs.k8s.io/kwok/cmd/kwok",
        values={"sigs.k8s.io/kwok/pkg/consts.Version": f"v{KWOK_VERSION}"},
    ),
    Program("fortio", "fortio", "fortio.org/fortio"),
    Program("pause", "pause"),
)


@dataclass(frozen=True)
class Files:
    """Files copied out of a Go module: charts and the like, which the module carries but no program embeds."""

    name: str
    module: str
    source: str
    copies: Mapping[str, str]

    def key(self) -> str:
        """Changes when the module's version or the list does."""
        folder = HERE / "go" / self.module
        content = (folder / "go.mod").read_text() + (folder / "go.sum").read_text()
        return hashlib.sha256(repr((_RECIPE, self, content)).encode()).hexdigest()


FILES = (
    Files(
        "istio",
        "tools",
        "istio.io/istio",
        {
            "manifests/charts/base": "charts/base",
            "manifests/charts/istio-control/istio-discovery": "charts/istiod",
            "manifests/charts/istio-cni": "charts/cni",
            "manifests/charts/ztunnel": "charts/ztunnel",
            "manifests/charts/gateway": "charts/gateway",
            "tools/packaging/common/envoy_bootstrap.json": "envoy_bootstrap.json",
            "LICENSE": "LICENSE",
        },
    ),
    Files("gateway-api", "tools", "sigs.k8s.io/gateway-api", {"config/crd/standard": "crds", "LICENSE": "LICENSE"}),
    Files(
        "kwok",
        "tools",
        "sigs.k8s.io/kwok",
        {
            "kustomize/stage/node/fast/node-initialize.yaml": "node-initialize.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml": "node-heartbeat.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml": "pod-ready.yaml",
            "kustomize/stage/pod/fast/pod-complete.yaml": "pod-complete.yaml",
            "kustomize/stage/pod/fast/pod-delete.yaml": "pod-delete.yaml",
            "LICENSE": "LICENSE",
        },
    ),
)


# --- the compiler -----------------------------------------------------------------------------------------------------


def find_go() -> Path:
    """Find a Go that is new enough: ``GO``, PATH, then the one that the library's own set-up installs from PyPI.

    Raises
    ------
    ClusterError
        There is none.
    """
    override = os.environ.get("GO")
    for candidate in [override] if override else [shutil.which("go")]:
        version = _go_version(candidate)
        if candidate and version >= _GO_NEEDED:
            return Path(shutil.which(candidate) or candidate)
        if override:
            raise ClusterError(
                f"GO={override} is not Go {'.'.join(map(str, _GO_NEEDED))} or newer; correct or unset GO"
            )
    sys.path.insert(0, str(CHECKOUT / "lib"))
    try:
        from meshtrial import native  # the checkout's, for set-up may not have installed it yet
    except ImportError:
        raise ClusterError("no Go 1.26 or newer on PATH; install one, or set GO to it") from None
    finally:
        sys.path.remove(str(CHECKOUT / "lib"))
    try:
        return Path(native.find_go(sys.stderr).path)
    except Exception as error:  # noqa: BLE001  whatever the library's set-up meets is the reason to give
        raise ClusterError(f"no Go 1.26 or newer on PATH, and none could be installed: {error}") from None


def _go_version(program: str | None) -> tuple[int, ...]:
    if not program:
        return ()
    try:
        answer = subprocess.run([program, "version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"go(\d+)\.(\d+)", answer)
    return (int(match[1]), int(match[2])) if match else ()


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GOFLAGS", "GOWORK"))}
    # local: never fetch another toolchain. CGO off: the programs must run in an image that has no C library.
    return environment | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


# --- stamps -----------------------------------------------------------------------------------------------------------


def _stamp(layout: Layout, name: str) -> Path:
    return layout.home / "stamps" / name


def _current(layout: Layout, item: Program | Files) -> bool:
    made = layout.program(item.name) if isinstance(item, Program) else layout.share / item.name
    stamp = _stamp(layout, item.name if isinstance(item, Program) else f"share-{item.name}")
    try:
        return made.exists() and json.loads(stamp.read_text())["key"] == item.key()
    except (OSError, ValueError, KeyError):
        return False


def _write_stamp(layout: Layout, name: str, key: str, seconds: float) -> None:
    path = _stamp(layout, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"key": key, "seconds": round(seconds, 1)}))
    partial.replace(path)


# --- building ---------------------------------------------------------------------------------------------------------


def missing(layout: Layout) -> list[str]:
    """Names of what a build would have to make."""
    return [item.name for item in (*PROGRAMS, *FILES) if not _current(layout, item)]


def _build_program(layout: Layout, go: Path, program: Program, say: Say) -> None:
    started = time.monotonic()
    log = layout.logs / f"build-{program.name}.log"
    partial = layout.bin / f".{program.name}.partial"
    command = ["nice", "-n", "10", *program.command(go, partial)]
    with log.open("w") as output:
        done = subprocess.run(
            command,
            cwd=HERE / "go" / program.module,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        partial.unlink(missing_ok=True)
        lines = [
            line for line in log.read_text(errors="replace").splitlines() if not line.startswith("go: downloading")
        ]
        raise ClusterError(f"building {program.name} failed: {lines[0] if lines else 'no message'} (all of it: {log})")
    partial.replace(layout.program(program.name))
    for link in program.also:
        path = layout.bin / link
        path.unlink(missing_ok=True)
        path.symlink_to(program.name)
    seconds = time.monotonic() - started
    _write_stamp(layout, program.name, program.key(), seconds)
    say(f"built {program.name} in {seconds:.0f} s")


def _module_folder(go: Path, files: Files) -> Path:
    """Where the Go tool unpacked a module; it is fetched if the module cache has lost it."""
    where = HERE / "go" / files.module
    done = subprocess.run(
        [str(go), "mod", "download", "-json", files.source],
        cwd=where,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return Path(json.loads(done.stdout)["Dir"])
    except (ValueError, KeyError):
        raise ClusterError(f"cannot fetch {files.source}: {(done.stderr or done.stdout).strip()[-200:]}") from None


def _copy_files(layout: Layout, go: Path, files: Files) -> None:
    source = _module_folder(go, files)
    target, partial = layout.share / files.name, layout.share / f".{files.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    for inside, name in files.copies.items():
        copy = partial / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (source / inside).is_dir():
            shutil.copytree(source / inside, copy)
        elif (source / inside).exists():
            shutil.copyfile(source / inside, copy)
        else:
            raise ClusterError(f"{files.source} has no {inside}: its layout changed")
    for path in partial.rglob("*"):  # the module cache is read-only, and these are to be deleted one day
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    _write_stamp(layout, f"share-{files.name}", files.key(), 0)


@contextmanager
def _lock(layout: Layout, say: Say) -> Iterator[None]:
    """One build at a time in one home."""
    layout.home.mkdir(parents=True, exist_ok=True)
    with (layout.home / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(layout: Layout, say: Say) -> dict[str, str]:
    """Build what is not current, then the images; return the image references by name.

    Parameters
    ----------
    layout : Layout
        Where it goes.
    say : callable
        Takes a line of progress.
    """
    started = time.monotonic()
    with _lock(layout, say):
        for folder in (layout.bin, layout.share, layout.images, layout.logs):
            folder.mkdir(parents=True, exist_ok=True)
        todo = [program for program in PROGRAMS if not _current(layout, program)]
        copies = [files for files in FILES if not _current(layout, files)]
        if todo or copies:
            _check_disk(layout)
            go = find_go()
            _build_all(layout, go, todo, copies, say)
        references = build_images(layout, say)
    say(f"build: {len(todo)} programs made, {len(PROGRAMS) - len(todo)} current, in {time.monotonic() - started:.1f} s")
    return references


def _build_all(layout: Layout, go: Path, todo: Sequence[Program], copies: Sequence[Files], say: Say) -> None:
    if todo:
        say(f"building {', '.join(program.name for program in todo)} (all of them: 15 minutes on 2 cores)")
    # One Go build leaves cores idle while it downloads and while it links; two at a time fill the gaps. Programs of the
    # same module follow each other, for most of the second one is then in Go's build cache.
    groups: dict[str, list[Program]] = {}
    for program in todo:
        groups.setdefault(program.module, []).append(program)
    failed = threading.Event()

    def run(group: Sequence[Program]) -> None:
        for program in group:
            if failed.is_set():
                return
            try:
                _build_program(layout, go, program, say)
            except ClusterError:
                failed.set()
                raise

    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(run, group) for group in groups.values()]
        jobs += [pool.submit(_copy_files, layout, go, files) for files in copies]
        for job in jobs:
            job.result()


def _check_disk(layout: Layout) -> None:
    free = shutil.disk_usage(layout.home).free
    if free < 12 << 30:
        raise ClusterError(
            f"{free >> 30} GiB free for {layout.home}; a build from nothing takes 12 GiB with Go's caches"
        )


def fingerprint() -> str:
    """Key of everything that a build makes from sources: a CI cache may be named by it."""
    keys = [item.key() for item in (*PROGRAMS, *FILES)]
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]


__all__ = ["FILES", "PROGRAMS", "Files", "Program", "build", "find_go", "fingerprint", "missing"]
