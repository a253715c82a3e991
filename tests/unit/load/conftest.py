"""A miniature fortio: its scheduler on a virtual clock, its histogram, its files."""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from meshtrial.load.generators import GeneratorOutput
from meshtrial.load.histogram import EDGES
from meshtrial.records.schema import ComponentUsage

START_NS = 1_795_229_163_000_000_000  # 2026-11-21T02:46:03Z
START_TEXT = "2026-11-21T02:46:03Z"


@dataclass(frozen=True)
class Sent:
    thread: int
    iteration: int
    start_ns: int
    latency_s: float
    ok: bool = True
    code: str = "200"


def export(latencies: Sequence[float], resolution: float) -> dict[str, Any]:
    """As Record and Export in stats.go."""
    counts = [0] * (len(EDGES) + 1)
    for value in latencies:
        scaled = value / resolution
        counts[next((i for i, edge in enumerate(EDGES) if scaled <= edge + 1e-9), len(EDGES))] += 1
    data, previous, total = [], EDGES[0], 0
    last = max((i for i, n in enumerate(counts) if n), default=-1)
    for i in range(last + 1):
        if counts[i]:
            total += counts[i]
            start = min(latencies) if not data and i < len(EDGES) else previous * resolution
            end = EDGES[i] * resolution if i < len(EDGES) else max(latencies)
            data.append({"Start": start, "End": end, "Percent": 100 * total / len(latencies), "Count": counts[i]})
        if i < len(EDGES):
            previous = EDGES[i]
    if data:
        data[-1]["End"] = max(latencies)
    n = len(latencies)
    low, high = (min(latencies), max(latencies)) if n else (0, 0)
    mean = sum(latencies) / n if n else 0
    return {"Count": n, "Min": low, "Max": high, "Sum": sum(latencies), "Avg": mean, "StdDev": 0, "Data": data or None}


def run(
    rps: float,
    threads: int,
    duration_s: float,
    service: Callable[[int, int], float],
    *,
    catchup: bool = True,
    start_ns: int = START_NS,
) -> list[Sent]:
    """As runOne in periodic.go with -uniform, on a virtual clock that wakes up exactly on time."""
    per_thread = rps / threads
    planned = int(rps * duration_s) // threads
    sent = []
    for thread in range(threads):
        own_start = start_ns + int(thread / rps * 1e9)
        clock, i = own_start, 0
        while i < planned:
            if clock > start_ns + duration_s * 1e9 and i >= 2 and i != planned - 1:
                break
            latency = round(service(thread, i), 6)
            sent.append(Sent(thread, i, clock, latency))
            clock += int(latency * 1e9)
            for i in itertools.count(i + 1):  # noqa: B020
                due = own_start + int((i + i / (planned - 1)) / per_thread * 1e9)
                if i >= planned or catchup or due >= clock:
                    break
            clock = max(clock, due)
    return sent


def log_text(sent: Sequence[Sent]) -> str:
    return "".join(
        f'{{"latency":{s.latency_s:f},"timestamp":{s.start_ns},"thread":{s.thread},"iter":{s.iteration},'
        f'"ok":{str(s.ok).lower()},"details":"{s.code}"}}\n'
        for s in sent
    )


def result_dict(sent: Sequence[Sent], rps: float, threads: int, duration_s: float, **changes: Any) -> dict[str, Any]:
    resolution = changes.get("Resolution", 1e-3)
    failed = [s.latency_s for s in sent if not s.ok]
    end_ns = max((s.start_ns + int(s.latency_s * 1e9) for s in sent), default=START_NS)
    codes: dict[str, int] = {}
    for s in sent:
        codes[s.code] = codes.get(s.code, 0) + 1
    data = {
        "RunType": "HTTP",
        "Labels": "test",
        "StartTime": START_TEXT,
        "RequestedQPS": f"{rps:.9g}" if rps else "max",
        "RequestedDuration": f"{duration_s:g}s",
        "ActualQPS": len(sent) / ((end_ns - START_NS) / 1e9) if sent else 0,
        "ActualDuration": end_ns - START_NS,
        "NumThreads": threads,
        "Version": "1.68.1",
        "DurationHistogram": export([s.latency_s for s in sent], resolution),
        "ErrorsDurationHistogram": export(failed, resolution),
        "Exactly": 0,
        "Jitter": False,
        "Uniform": True,
        "NoCatchUp": False,
        "RetCodes": codes,
        "URL": "http://127.0.0.1:8080/",
        "DisableFastClient": False,
        "H2": False,
        "DisableKeepAlive": False,
        "HTTPReqTimeOut": 5_000_000_000,
        "Resolution": resolution,
        "SocketCount": threads,
    }
    return data | changes


class Fortio:
    """Writes what a generator would have left in a folder."""

    Sent = Sent
    START_NS = START_NS
    export = staticmethod(export)
    run = staticmethod(run)
    log_text = staticmethod(log_text)
    result_dict = staticmethod(result_dict)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def output(
        self,
        sent: Sequence[Sent],
        rps: float,
        threads: int,
        duration_s: float,
        *,
        name: str = "measure-g1",
        text: str = "",
        exit_code: int = 0,
        **changes: Any,
    ) -> GeneratorOutput:
        json_path, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        json_path.write_text(json.dumps(result_dict(sent, rps, threads, duration_s, **changes)))
        log.write_text(log_text(sent))
        argv = ("fortio", "load", "-qps", repr(float(rps)), "-c", str(threads), "-t", f"{duration_s:g}s", "-uniform")
        usage = ComponentUsage(name, "load generator", duration_s, 0.1, None)
        return GeneratorOutput(name, argv, exit_code, json_path, log, text, usage)


@pytest.fixture
def fortio(tmp_path: Path) -> Fortio:
    return Fortio(tmp_path)


@pytest.fixture(scope="session")
def virtual() -> type[Fortio]:
    """The same without a folder, for property tests."""
    return Fortio


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return Path(__file__).parents[2] / "fixtures" / "load"
