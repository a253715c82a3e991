"""Build the cluster's programs from the Go module proxy, into the cluster home and never into the checkout.

Every program is keyed by its recipe, its go.mod and its go.sum. An unchanged program is not built again; only its
stamp is compared.
"""

import fcntl
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from testcluster.compiler import Compilers, find_go, go_environment
from testcluster.images import build_images
from testcluster.recipes import FILES, PROGRAMS, Files, Program
from testcluster.settings import HERE, ClusterError, Layout

Say = Callable[[str], None]


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


def missing(layout: Layout) -> list[str]:
    """Return the names of what a build would have to make."""
    return [item.name for item in (*PROGRAMS, *FILES) if not _current(layout, item)]


def _build_program(layout: Layout, go: Path, program: Program, say: Say, compilers: Compilers) -> None:
    started = time.monotonic()
    log = layout.logs / f"build-{program.name}.log"
    partial = layout.bin / f".{program.name}.partial"
    command = ["nice", "-n", "10", *program.command(go, partial)]
    with log.open("w") as output:
        code = compilers.run(command, HERE / "go" / program.module, output)
    if code:
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
    """Return where the Go tool unpacked a module; fetch it if the module cache has lost it."""
    where = HERE / "go" / files.module
    done = subprocess.run(
        [str(go), "mod", "download", "-json", files.source],
        cwd=where,
        env=go_environment(),
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
    for path in partial.rglob("*"):  # the module cache is read-only, and these must be deletable
        path.chmod(0o755 if path.is_dir() else 0o644)
    files.adapt(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    _write_stamp(layout, f"share-{files.name}", files.key(), 0)


@contextmanager
def _lock(layout: Layout, say: Say) -> Iterator[None]:
    """Allow one build at a time per home."""
    layout.home.mkdir(parents=True, exist_ok=True)
    with (layout.home / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(layout: Layout, say: Say, programs: Sequence[Program] = PROGRAMS) -> dict[str, str]:
    """Build what is not current (all that the cluster runs, or what is wanted beside it); image references by name."""
    started = time.monotonic()
    with _lock(layout, say):
        for folder in (layout.bin, layout.share, layout.images, layout.logs):
            folder.mkdir(parents=True, exist_ok=True)
        todo = [program for program in programs if not _current(layout, program)]
        copies = [files for files in FILES if not _current(layout, files)]
        if todo or copies:
            _check_disk(layout)
            go = find_go()
            _build_all(layout, go, todo, copies, say)
        references = build_images(layout, say)
    say(f"build: {len(todo)} programs made, {len(programs) - len(todo)} current, in {time.monotonic() - started:.1f} s")
    return references


def _build_all(layout: Layout, go: Path, todo: Sequence[Program], copies: Sequence[Files], say: Say) -> None:
    if todo:
        say(f"building {', '.join(program.name for program in todo)} (all of them: 15 minutes on 2 cores)")
    # A Go build leaves cores idle while it downloads and links; two at a time fill the gaps. Programs of one module
    # follow each other, because the later ones find most packages in Go's build cache.
    groups: dict[str, list[Program]] = {}
    for program in todo:
        groups.setdefault(program.module, []).append(program)

    def run(group: Sequence[Program]) -> None:
        for program in group:
            _build_program(layout, go, program, say, compilers)

    for abandoned in layout.home.glob("work-*"):  # left by a build that was killed
        shutil.rmtree(abandoned, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(dir=layout.home, prefix="work-", ignore_cleanup_errors=True) as work,
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        compilers = Compilers(work)
        try:
            jobs = [pool.submit(run, group) for group in groups.values()]
            jobs += [pool.submit(_copy_files, layout, go, files) for files in copies]
            for job in as_completed(jobs):  # report the first failure
                job.result()
        except BaseException:
            compilers.end()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _check_disk(layout: Layout) -> None:
    free = shutil.disk_usage(layout.home).free
    if free < 12 << 30:
        raise ClusterError(
            f"{free >> 30} GiB free for {layout.home}; a build from nothing takes 12 GiB with Go's caches"
        )


__all__ = ["build", "missing"]
