"""Make requests and read pages from inside the cluster, on fresh connections, for the proofs."""

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
_ECHO = re.compile(r"^tcp (.+) : 1 \(", re.MULTILINE)  # fortio's count of results
_PATH = "PATH=/usr/bin:/usr/local/bin:/bin:/; export PATH"
_PAGES_PER_EXEC = 50
# With 300 services, Kuma's sidecars answered no page for some seconds after they were ready.
_PAGE_PATIENCE_S = 30.0
# How fortio describes a connection that a proxy refused. Anything else (no such host, connection refused, a time-out)
# proves nothing, because no proxy may have been there.
_CUT = re.compile(
    r"reset by peer|EOF|broken pipe|closed|truncated|unexpected|read error|short read|no http header", re.IGNORECASE
)


@dataclass(frozen=True)
class Answer:
    """The answer to one request; status 0 without an HTTP answer."""

    status: int
    body: str
    detail: str

    @property
    def refused(self) -> bool:
        """Whether a proxy was there and refused the request."""
        return self.status in (401, 403, 503) or (self.status == 0 and bool(_CUT.search(self.detail)))


def request(
    cluster: Cluster, pod: PodRef, url: str, headers: Sequence[tuple[str, str]] = (), method: str = "GET"
) -> Answer:
    """Send one request by fortio from this pod, on a new connection; bytes that ``tcp://`` echoes count as 200."""
    if url.startswith("tcp://"):
        script = f'{_PATH}; exec fortio load -n 1 -c 1 -qps 0 -payload-size 64 -timeout 5s "$1"'
        exited = run(cluster, pod, [BUSYBOX, "sh", "-c", script, "sh", url], timeout_s=20)
        result = _ECHO.search(exited.both)
        if result and result[1] == "OK":
            return Answer(200, "", "echoed")
        return Answer(0, "", result[1][:200] if result else f"no echo (exit {exited.code})")
    flags = [part for name, value in headers for part in ("-H", f"{name}: {value}")]
    flags += ["-X", method] if method != "GET" else []
    script = f'{_PATH}; exec fortio curl -timeout 5s "$@"'
    exited = run(cluster, pod, [BUSYBOX, "sh", "-c", script, "sh", *flags, url], timeout_s=20)
    text = exited.err.decode(errors="replace")
    status = _STATUS.search(text) or _STATUS.search(exited.text)
    if status:
        return Answer(int(status[1]), exited.text, f"HTTP {status[1]}")
    return Answer(0, "", _reason(text) or f"no answer (exit {exited.code})")


def scrape(cluster: Cluster, probe: PodRef, urls: Sequence[str]) -> list[str]:
    """Return pages, many per exec; a page that cannot be read is an empty text."""
    pages: list[str] = []
    end = "=====meshtrial====="
    for start in range(0, len(urls), _PAGES_PER_EXEC):
        batch = urls[start : start + _PAGES_PER_EXEC]
        # The standard client: the fast one cuts a page at its buffer's 128 KiB.
        read = 'fortio curl -stdclient -quiet -timeout 5s "$u" 2>/dev/null'
        script = f'{_PATH}; for u in "$@"; do {read}; echo; echo {end}; done'
        exited = run(cluster, probe, [BUSYBOX, "sh", "-c", script, "sh", *batch], timeout_s=30 + 5 * len(batch))
        complete = exited.text.split(f"{end}\n")[:-1]  # a page that was cut off has no end
        pages += [*complete, *[""] * (len(batch) - len(complete))]
    return pages


def total(cluster: Cluster, probe: PodRef, addresses: Sequence[str], url: str, pattern: str) -> float:
    """Return the sum of a counter over pods: ``url`` is ``port/path``, the pattern's group is the number.

    TestbedError where a page cannot be read.
    """
    if not addresses:
        raise TestbedError(f"counter at {url}: no pod to read it from")
    pages: dict[str, str] = {}

    def missing() -> list[str]:
        remaining = [address for address in addresses if not pages.get(address, "").strip()]
        pages.update(
            zip(remaining, scrape(cluster, probe, [network.url(address, url) for address in remaining]), strict=True)
        )
        return [address for address in remaining if not pages[address].strip()]

    if remaining := waiting.until(missing, _PAGE_PATIENCE_S, 1.0, lambda remaining: not remaining):
        raise TestbedError(f"counter at {network.url(remaining[0], url)}: the page cannot be read")
    return sum(float(number) for page in pages.values() for number in re.findall(pattern, page))


def grown(read: Callable[[], float], before: float, expected: float, patience_s: float = 5.0) -> float:
    """Return how much a counter grew, read again for a while where it lags."""
    return waiting.until(lambda: read() - before, patience_s, 0.5, lambda growth: growth >= expected)


def _reason(text: str) -> str:
    """Return fortio's own reason; its last line only states that something failed."""
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
    buckets: dict[float, float] = field(default_factory=dict)  # number of values up to a bound, by that bound in s

    def since(self, before: Histogram) -> Histogram:
        """Return the observations after an earlier reading; all of them where a counter restarted."""
        if self.count < before.count:
            return self
        buckets = {bound: number - before.buckets.get(bound, 0.0) for bound, number in self.buckets.items()}
        return Histogram(self.count - before.count, self.total_s - before.total_s, buckets)


def parse_histogram(text: str, name: str) -> Histogram:
    """Return one histogram of a page in Prometheus' text format."""
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
    """Return the control plane's histogram of pushes, over all of its pods; an empty page counts nothing."""
    urls = [network.url(pod["status"].get("podIP", ""), pushes.url) for pod in pods]
    return parse_histogram("\n".join(scrape(cluster, probe, urls)), pushes.histogram) if urls else Histogram()


def describe_pushes(histogram: Histogram) -> dict[str, Any]:
    """Return number, mean and the bound below which 99 % lie, for ``run.json``; empty without any."""
    if histogram.count <= 0:
        return {}
    bounds = [bound for bound, number in sorted(histogram.buckets.items()) if number >= _TAIL * histogram.count]
    tail = {"p99_at_most_s": bounds[0]} if bounds else {}
    return {"count": int(histogram.count), "mean_s": histogram.total_s / histogram.count, **tail}
