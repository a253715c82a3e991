"""Requests and readings made from inside the cluster, on fresh connections: the hands of the proofs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshtrial import network, waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.meshdata import Pushes
from meshtrial.testbed.kubernetes.pods import BUSYBOX, PodRef, run

_STATUS = re.compile(r"^HTTP/[0-9.]+ (\d{3})", re.MULTILINE)
_CAME_BACK = re.compile(r"^tcp (.+) : 1 \(", re.MULTILINE)  # fortio's count of what became of the bytes
_PATH = "PATH=/usr/bin:/usr/local/bin:/bin:/; export PATH"
_AT_ONCE = 50
# Kuma's sidecars answered no page for some seconds after they were ready, with 300 services to be told of.
_PAGE_PATIENCE_S = 30.0
# What a proxy does to a connection that it refuses, as fortio words it. Anything else (no such host, connection
# refused, a time-out) proves nothing: nobody may have been there to refuse.
_CUT = re.compile(
    r"reset by peer|EOF|broken pipe|closed|truncated|unexpected|read error|short read|no http header", re.IGNORECASE
)


@dataclass(frozen=True)
class Answer:
    """What came of one request; status 0 where no HTTP answer came."""

    status: int
    body: str
    detail: str

    @property
    def refused(self) -> bool:
        """Somebody was there, and did not let it in."""
        return self.status in (401, 403, 503) or (self.status == 0 and bool(_CUT.search(self.detail)))


def request(
    cluster: Cluster, pod: PodRef, url: str, headers: Sequence[tuple[str, str]] = (), method: str = "GET"
) -> Answer:
    """One request by fortio in this pod; a retried one is a new connection too. Of ``tcp://`` an echo is a 200."""
    if url.startswith("tcp://"):
        return _exchange(cluster, pod, url)
    flags = [part for name, value in headers for part in ("-H", f"{name}: {value}")]
    flags += ["-X", method] if method != "GET" else []
    script = f'{_PATH}; exec fortio curl -timeout 5s "$@"'
    done = run(cluster, pod, [BUSYBOX, "sh", "-c", script, "sh", *flags, url], timeout_s=20)
    text = done.err.decode(errors="replace")
    status = _STATUS.search(text) or _STATUS.search(done.text)
    if status:
        return Answer(int(status[1]), done.text, f"HTTP {status[1]}")
    return Answer(0, "", _reason(text) or f"no answer (exit {done.code})")


def _exchange(cluster: Cluster, pod: PodRef, url: str) -> Answer:
    """Bytes sent once, and whether they came back as they were, which fortio compares."""
    script = f'{_PATH}; exec fortio load -n 1 -c 1 -qps 0 -payload-size 64 -timeout 5s "$1"'
    done = run(cluster, pod, [BUSYBOX, "sh", "-c", script, "sh", url], timeout_s=20)
    came = _CAME_BACK.search(done.both)
    if came and came[1] == "OK":
        return Answer(200, "", "echoed")
    return Answer(0, "", came[1][:200] if came else f"no echo (exit {done.code})")


def scrape(cluster: Cluster, probe: PodRef, urls: Sequence[str]) -> list[str]:
    """Read pages, many in one exec; a page that does not come is an empty text."""
    pages: list[str] = []
    mark = "=====meshtrial====="
    for start in range(0, len(urls), _AT_ONCE):
        part = urls[start : start + _AT_ONCE]
        # The standard client: the fast one cuts a page at its buffer's 128 KiB.
        read = 'fortio curl -stdclient -quiet -timeout 5s "$u" 2>/dev/null'
        script = f'{_PATH}; for u in "$@"; do {read}; echo; echo {mark}; done'
        done = run(cluster, probe, [BUSYBOX, "sh", "-c", script, "sh", *part], timeout_s=30 + 5 * len(part))
        came = done.text.split(f"{mark}\n")[:-1]  # where it was cut off, the last has no mark
        pages += [*came, *[""] * (len(part) - len(came))]
    return pages


def total(cluster: Cluster, probe: PodRef, addresses: Sequence[str], url: str, pattern: str) -> float:
    """The sum of a counter over pods: ``url`` is ``port/path``, the pattern's group is the number.

    A page that does not come is a TestbedError.
    """
    if not addresses:
        raise TestbedError(f"counter at {url}: there is no pod to read it from")
    pages: dict[str, str] = {}

    def missing() -> list[str]:
        left = [address for address in addresses if not pages.get(address, "").strip()]
        pages.update(zip(left, scrape(cluster, probe, [network.url(address, url) for address in left]), strict=True))
        return [address for address in left if not pages[address].strip()]

    if left := waiting.until(missing, _PAGE_PATIENCE_S, 1.0, lambda left: not left):
        raise TestbedError(f"counter at {network.url(left[0], url)}: the page does not come")
    return sum(float(number) for page in pages.values() for number in re.findall(pattern, page))


def grown(read: Callable[[], float], before: float, wanted: float, patience_s: float = 5.0) -> float:
    """How much a counter grew, asked again for a while where it lags behind."""
    return waiting.until(lambda: read() - before, patience_s, 0.5, lambda more: more >= wanted)


def _reason(text: str) -> str:
    """fortio's own word for what went wrong; its last line only says that something did."""
    error = re.search(r'err=\\?"(.+?)\\?"(?:,|$)', text)
    if error:
        return error[1][:200]
    lines = [line for line in text.splitlines() if "[E]" in line and "Error status" not in line]
    return " ".join((lines or text.splitlines() or [""])[0].split())[:200]


# --- pushes of a control plane ----------------------------------------------------------------------------------------

PUSH_RESPONSE = "convergence_s"
_TAIL = 0.99


@dataclass(frozen=True)
class Histogram:
    """Counters of a Prometheus histogram, summed over its label sets and pods."""

    count: float = 0.0
    total_s: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)  # upper bound in seconds to what is at or below it

    def since(self, before: Histogram) -> Histogram:
        """What was observed after an earlier reading; everything where a counter began anew."""
        if self.count < before.count:
            return self
        buckets = {bound: number - before.buckets.get(bound, 0.0) for bound, number in self.buckets.items()}
        return Histogram(self.count - before.count, self.total_s - before.total_s, buckets)


def parse_histogram(text: str, name: str) -> Histogram:
    """Read one histogram of a page."""
    number = r"([0-9.eE+-]+)"
    buckets: dict[float, float] = {}
    for bound, value in re.findall(
        rf'(?m)^{re.escape(name)}_bucket\{{[^}}]*le="([0-9.eE+-]+)"[^}}]*\}} {number}$', text
    ):
        buckets[float(bound)] = buckets.get(float(bound), 0.0) + float(value)

    def summed(suffix: str) -> float:
        numbers = re.findall(rf"(?m)^{re.escape(name)}_{suffix}(?:\{{[^}}]*\}})? {number}$", text)
        return sum(map(float, numbers))

    return Histogram(summed("count"), summed("sum"), buckets)


def read_pushes(cluster: Cluster, probe: PodRef, pods: Sequence[Json], pushes: Pushes) -> Histogram:
    """The histogram now, over all pods of the control plane; a page that is empty counts nothing."""
    urls = [network.url(pod["status"].get("podIP", ""), pushes.url) for pod in pods]
    return parse_histogram("\n".join(scrape(cluster, probe, urls)), pushes.histogram) if urls else Histogram()


def describe_pushes(seen: Histogram) -> dict[str, Any]:
    """For ``run.json``: how many, their mean, and the bound below which 99 % of them lie; empty without any."""
    if seen.count <= 0:
        return {}
    enough = [bound for bound, number in sorted(seen.buckets.items()) if number >= _TAIL * seen.count]
    tail = {"p99_at_most_s": enough[0]} if enough else {}
    return {"count": int(seen.count), "mean_s": seen.total_s / seen.count, **tail}
