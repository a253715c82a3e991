"""Run fortio in pods: start it at the same second of each pod's clock, watch it, and fetch its results.

The official fortio image holds nothing but fortio, so an init container copies a static busybox into the pod. Its shell
waits for the second, records fortio's CPU time, and outlives a broken connection to the API server. Latencies come from
the generator's own clock alone.
"""

import contextlib
import hashlib
import io
import shlex
import tarfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from meshtrial.errors import TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target, publishable
from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.pods import BUSYBOX, BrokenStreamError, PodRef, Running, run

_CHUNK = 4 << 20  # bytes that are fetched at once
_FILES = {"json": "result.json", "log": "access.log", "text": "output.txt"}

# $1 is the folder, the rest fortio's command line. The load runs in a session of its own: the runtime ends an exec's
# process when the connection breaks, and a load that dies with a restarting API server could not be reported.
_SCRIPT = """
b=/tools/busybox; PATH=/usr/bin:/usr/local/bin:/bin:/; export PATH
d=$1; shift; $b rm -rf "$d"; $b mkdir -p "$d" || exit 90; cd "$d" || exit 90
echo "ready $($b date +%s)"
read -r at || exit 91
while [ "$($b date +%s)" -lt "$at" ]; do $b usleep 2000; done
( trap '' HUP; exec $b setsid $b sh -c '
  b=/tools/busybox
  $b time -f "%e %U %S %w %c" -o usage "$@" >output.txt 2>&1 </dev/null
  echo $? >code.part
  $b tar -cf - $($b ls result.json access.log output.txt usage 2>/dev/null) | $b gzip -c >all.tgz
  $b sha256sum all.tgz >sum; $b wc -c <all.tgz >size
  $b mv code.part code' sh "$@" ) &
echo $! >pid
wait
""".strip()


# A background load in a session of its own, which the next one replaces. $@ is its command line; an empty one ends it.
_BACKGROUND = """
b=/tools/busybox; PATH=/usr/bin:/usr/local/bin:/bin:/; export PATH; cd /results || exit 90
[ ! -e trickle ] || $b kill -9 -$($b cat trickle) 2>/dev/null; $b rm -f trickle
[ $# -gt 0 ] || exit 0
( trap '' HUP; exec $b setsid "$@" >/dev/null 2>&1 </dev/null ) &
echo $! >trickle
""".strip()


@dataclass
class _Call:
    call: GeneratorCall
    pod: PodRef
    argv: tuple[str, ...]
    folder: str
    stream: Running | None = None
    broken: str = ""


class _Outage:
    """How long the API server did not answer while a load ran."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.seconds = 0.0

    def heard(self, answered: bool) -> None:
        """Record whether the API server answers now."""
        now = time.monotonic()
        if answered and self.since is not None:
            self.seconds += now - self.since
        self.since = None if answered else self.since or now

    def text(self, server: str) -> str:
        return (
            f"; the API server {server} gave no answer for {self.seconds:.1f} s during the load" if self.seconds else ""
        )


def generate(
    cluster: Cluster,
    pods: Sequence[PodRef],
    calls: Sequence[GeneratorCall],
    target: Target,
    folder: Path,
    timeout_s: float,
    healthy: Callable[[], str],
) -> tuple[GeneratorOutput, ...]:
    """Make the calls side by side, spread over the pods, and wait for all of them.

    ``healthy`` asks the API server once why the run is invalid, or returns an empty text. A lost pod, an API server
    that was away, or a generator that failed or did not end is a TestbedError.
    """
    todo = [_Call(c, pods[i % len(pods)], command_line(c, target), f"/results/{c.name}") for i, c in enumerate(calls)]
    try:
        _start(cluster, todo)
        _wait(cluster, todo, timeout_s, healthy)
        with ThreadPoolExecutor(max_workers=8) as pool:
            return tuple(pool.map(lambda c: _collect(cluster, c, folder), todo))
    except BaseException:
        _stop(cluster, todo)
        raise
    finally:
        for item in todo:
            if item.stream is not None:
                item.stream.close()


def keep_warm(cluster: Cluster, pod: PodRef, argv: Sequence[str]) -> None:
    """End the background load of a load pod, and start this command line, if any; its output is discarded."""
    answer = run(cluster, pod, [BUSYBOX, "sh", "-c", _BACKGROUND, "sh", *argv])
    if answer.code != 0:
        raise TestbedError(f"load pod {pod}: its background load ended with code {answer.code}: {answer.both[:300]}")


def command_line(call: GeneratorCall, target: Target) -> tuple[str, ...]:
    """Return the command line of a call in a load pod."""
    files = ("-json", _FILES["json"], "-access-log-file", _FILES["log"], "-access-log-format", "json")
    return ("fortio", "load", *call.arguments, *files, *target.arguments(call))


def _start(cluster: Cluster, todo: Sequence[_Call]) -> None:
    def prepare(item: _Call) -> int:
        command = [BUSYBOX, "sh", "-c", _SCRIPT, "sh", item.folder, *item.argv]
        item.stream = Running(cluster, item.pod, command, stdin=True)
        word, _, moment = item.stream.line(30).partition(" ")
        if word != "ready":
            raise TestbedError(f"load pod {item.pod}: reported {word!r} instead of being ready")
        return int(moment)

    with ThreadPoolExecutor(max_workers=16) as pool:
        clocks = list(pool.map(prepare, todo))
    # A common second, with one more for the slowest connection; a single generator starts at once.
    at = max(clocks) + 2 if len(todo) > 1 else 0
    for item in todo:
        assert item.stream is not None
        item.stream.write(f"{at}\n".encode())


def _wait(cluster: Cluster, todo: Sequence[_Call], timeout_s: float, healthy: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    outage = _Outage()
    checked_at = 0.0
    running = list(todo)
    while running:
        running = [item for item in running if _runs(cluster, item, outage)]
        if time.monotonic() - checked_at >= 1.0:
            checked_at = time.monotonic()
            try:
                reason = healthy()
            except (OSError, TestbedError):
                outage.heard(False)
            else:
                outage.heard(True)
                if reason:
                    raise TestbedError(reason)
        if running and time.monotonic() > deadline:
            outage.heard(True)
            names = ", ".join(item.call.name for item in running)
            raise TestbedError(
                f"load generator {names}: did not end within {timeout_s:g} s{outage.text(cluster.server)}; "
                "its node may be gone, or the target answers too slowly"
            )
        if running:
            time.sleep(0.05)
    outage.heard(True)
    broken = next((f"; {item.broken}" for item in todo if item.broken), "")
    if outage.seconds > 0 or broken:
        raise TestbedError(f"the run was disturbed{outage.text(cluster.server)}{broken}")


def _runs(cluster: Cluster, item: _Call, outage: _Outage) -> bool:
    """Return whether the call still runs; after its stream broke, ask once a second."""
    if not item.broken:
        assert item.stream is not None
        try:
            return item.stream.step(0.0)
        except BrokenStreamError as error:
            item.broken = str(error)
    try:
        answer = run(cluster, item.pod, [BUSYBOX, "cat", f"{item.folder}/code"], timeout_s=5, again=False)
    except TestbedError:
        outage.heard(False)
        time.sleep(0.5)
        return True
    outage.heard(True)
    return answer.code != 0


def _stop(cluster: Cluster, todo: Sequence[_Call]) -> None:
    # A load that still runs would disturb the next run of a deployment that is kept.
    for item in todo:
        if item.stream is None:
            continue
        kill = f"cd {shlex.quote(item.folder)} && [ ! -e code ] && {BUSYBOX} kill -9 -$({BUSYBOX} cat pid)"
        with contextlib.suppress(TestbedError):
            run(cluster, item.pod, [BUSYBOX, "sh", "-c", kill], timeout_s=5, again=False)


def _collect(cluster: Cluster, item: _Call, folder: Path) -> GeneratorOutput:
    name, pod = item.call.name, item.pod
    try:
        answer = run(
            cluster, pod, [BUSYBOX, "sh", "-c", f"cd {shlex.quote(item.folder)} && {BUSYBOX} cat code size sum"]
        )
        words = answer.text.split()
        if answer.code != 0 or len(words) < 3:
            raise TestbedError(f"load generator {name}: left no result in pod {pod}: {answer.both[:300]}")
        code = int(words[0])
        files = unpack(_fetch(cluster, pod, f"{item.folder}/all.tgz", int(words[1]), words[2]))
        paths = {kind: folder / f"{name}.{'txt' if kind == 'text' else kind}" for kind in _FILES}
        for kind, file in _FILES.items():
            if file in files:
                paths[kind].write_bytes(files[file])
        text = files.get("output.txt", b"").decode(errors="replace")
        if code != 0 or "result.json" not in files:
            lines = [line for line in text.splitlines() if line.strip()]
            last_lines = " ".join(lines[-3:])[:400] or "no output"
            raise TestbedError(f"load generator {name}: ended with code {code}: {last_lines}")
        run(cluster, pod, [BUSYBOX, "rm", "-rf", item.folder])
    except BrokenStreamError as error:
        # The stream of a node without power breaks long before the cluster reports the node as NotReady.
        raise TestbedError(
            f"load pod {pod.name} on node {pod.node} can no longer be reached; its node may be gone ({error})"
        ) from None
    usage = parse_usage(files.get("usage", b"").decode(errors="replace"), name)
    return GeneratorOutput(name, publishable(item.argv), code, paths["json"], paths["log"], text, usage)


def _fetch(cluster: Cluster, pod: PodRef, path: str, size: int, digest: str) -> bytes:
    """Return a file in full; each piece is requested again where the connection broke."""
    data = bytearray()
    while len(data) < size:
        # dd counts in blocks, so every piece starts on a multiple of the chunk.
        command = [BUSYBOX, "dd", f"if={path}", f"bs={_CHUNK}", f"skip={len(data) // _CHUNK}", "count=1"]
        piece = run(cluster, pod, command, timeout_s=120)
        expected = min(_CHUNK, size - len(data))
        if piece.code != 0 or len(piece.out) != expected:
            message = piece.err.decode(errors="replace")[:200]
            raise TestbedError(f"{pod}: {path}: {len(piece.out)} of {expected} bytes arrived: {message}")
        data += piece.out
    if hashlib.sha256(data).hexdigest() != digest:
        raise TestbedError(f"{pod}: {path}: its SHA-256 differs from that in the pod")
    return bytes(data)


def parse_usage(text: str, name: str) -> ComponentUsage:
    """Return the generator's use from ``time``'s line: elapsed, user, system, and both kinds of switches."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or len(lines[-1]) != 5:
        raise TestbedError(f"load generator {name}: its CPU time is missing ({text.strip()[:100]!r})")
    elapsed, user, system, voluntary, other = lines[-1]
    cpu_s, switches = float(user) + float(system), int(voluntary) + int(other)
    return ComponentUsage(name, "load generator", float(elapsed), cpu_s, None, switches=switches)


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of a tar.gz archive by their names."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                files[Path(member.name).name] = content.read()
    return files


# --- clocks -----------------------------------------------------------------------------------------------------------

_CLOCK_SECONDS = 3
# Answers one line, then prints each of some seconds as it begins.
_CLOCK_SCRIPT = f"""
b={BUSYBOX}
echo ready
read -r _; echo back
for i in {" ".join(map(str, range(_CLOCK_SECONDS)))}; do
  s=$($b date +%s); n=$s; k=0
  while [ "$n" = "$s" ]; do n=$($b date +%s); k=$((k + 1)); done
  echo "$n $k"
done
""".strip()


@dataclass(frozen=True)
class ClockOffset:
    """The offset of another clock from this machine's."""

    offset_s: float  # this machine's clock minus the other
    error_s: float  # half-width of the interval that holds the true offset


def measure_offset(cluster: Cluster, pod: PodRef) -> ClockOffset:
    """Return the offset of a load pod's clock, measured at the edges of its seconds: a shell shows no more.

    A second that the pod prints as it begins is received a moment later. So the offset is at most the delay that was
    seen. It is no smaller than that delay minus the transport, which is at most one round trip, and minus one turn of
    the shell's loop.
    """
    with Running(cluster, pod, [BUSYBOX, "sh", "-c", _CLOCK_SCRIPT], stdin=True) as running:
        running.line(30)
        asked = time.monotonic()
        running.write(b"\n")
        running.line(30)
        answer_s = time.monotonic() - asked
        delays, turns = [], []
        for _ in range(_CLOCK_SECONDS):
            line = running.line(30)
            now = time.time()
            second, _, turns_text = line.partition(" ")
            if not (second.isdigit() and turns_text.isdigit()):
                raise TestbedError(f"{pod}: answered {line[:60]!r} when asked for its time")
            delays.append(now - int(second))
            turns.append(int(turns_text))
    # The loop began within the first second; it saw the others whole.
    return estimate_offset(delays, answer_s, 1 / max(1, min(turns[1:])))


def estimate_offset(delays: list[float], answer_s: float, turn_s: float) -> ClockOffset:
    """Return the offset from the delays of some seconds, the round trip and one turn of the loop."""
    # The smallest delay has the least transport in it.
    error_s = (answer_s + turn_s) / 2
    return ClockOffset(min(delays) - error_s, error_s)
