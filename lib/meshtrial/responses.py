"""The registry of responses: one number of a run each, with its unit, its kind and its default margin.

SI base units are stored; ``display`` says how a reader sees them. A response that is not listed here
cannot be declared primary and gets no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshtrial.errors import UsageError
from meshtrial.study import Load, Margin

LATENCY_FLOOR_S = 1e-4
QUANTILES = {"p50": 0.50, "p75": 0.75, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class Response:
    """One response.

    Attributes
    ----------
    name : str
        With its unit, e.g. ``latency_p50_s``.
    label : str
        What a reader sees, e.g. ``p50 latency``.
    kind : str
        ``latency`` (slower, faster), ``resource`` (more, less), ``level`` (higher, lower) or ``quality``
        (described, never judged).
    unit, scale : str, float
        Display unit and what the stored value is multiplied by to get there.
    margin : Margin or None
        Default equivalence margin; None where no verdict is given.
    structural_zero : bool
        May be zero because the arm has no such part; then the difference is compared, not the ratio.
    """

    name: str
    label: str
    kind: str
    unit: str
    scale: float
    margin: Margin | None = None
    structural_zero: bool = False


def _latencies() -> list[Response]:
    relative = {"p50": 0.05, "p75": 0.05, "p90": 0.05, "p95": 0.10, "p99": 0.10, "p999": 0.20}
    shown = {"p999": "p99.9"}
    found = []
    for q, margin in relative.items():
        label = shown.get(q, q)
        found.append(
            Response(f"latency_{q}_s", f"{label} latency", "latency", "ms", 1e3, Margin(margin, LATENCY_FLOOR_S))
        )
        found.append(
            Response(
                f"latency_corrected_{q}_s",
                f"{label} latency from the schedule",
                "latency",
                "ms",
                1e3,
                Margin(margin, LATENCY_FLOOR_S),
            )
        )
    # Of a load that mixes HTTP and gRPC, each apart.
    found += [
        Response(
            f"latency_{protocol}_{q}_s",
            f"{shown.get(q, q)} latency, {label}",
            "latency",
            "ms",
            1e3,
            Margin(margin, LATENCY_FLOOR_S),
        )
        for protocol, label in (("http", "HTTP/1.1"), ("grpc", "gRPC"))
        for q, margin in relative.items()
    ]
    found.append(Response("latency_mean_s", "mean latency", "latency", "ms", 1e3, Margin(0.05, LATENCY_FLOOR_S)))
    found.append(Response("latency_max_s", "largest latency (depends on N)", "quality", "ms", 1e3))
    return found


def _resources() -> list[Response]:
    margin = Margin(0.10)
    roles = {
        "path": "app and data plane",
        "data_plane": "data plane",
        "app": "app",
        "load_generator": "load generator",
        "policy": "policy server",
        "control_plane": "control plane",
    }
    found = []
    for role, label in roles.items():
        zero = role in ("data_plane", "policy", "control_plane")
        found.append(
            Response(
                f"{role}_cpu_s_per_request", f"CPU a request, {label}", "resource", "us/request", 1e6, margin, zero
            )
        )
        found.append(Response(f"{role}_cpu_cores", f"CPU, {label}", "resource", "cores", 1.0, margin, zero))
        found.append(
            Response(f"{role}_memory_bytes", f"memory (PSS), {label}", "resource", "MiB", 1 / 2**20, margin, zero)
        )
    return found


def _switches() -> list[Response]:
    roles = {"path": "app and data plane", "data_plane": "data plane", "app": "app", "load_generator": "load generator"}
    return [
        Response(
            f"{role}_switches_per_request",
            f"context switches a request, {label}",
            "resource",
            "switches/request",
            1.0,
            Margin(0.10),
            role == "data_plane",
        )
        for role, label in roles.items()
    ]


def _levels() -> list[Response]:
    return [
        Response("capacity_rps", "capacity", "level", "rps", 1.0, Margin(0.10)),
        Response("closed_loop_rps", "closed-loop maximum", "level", "rps", 1.0, Margin(0.10)),
    ]


def _scale_out() -> list[Response]:
    margins = {"p50": 0.05, "p90": 0.05, "p95": 0.10, "p99": 0.10, "p999": 0.20}
    found = [
        Response(
            f"latency_beyond_holds_{q}_s",
            f"{q.replace('999', '99.9')} latency beyond the holds",
            "latency",
            "ms",
            1e3,
            Margin(margin, LATENCY_FLOOR_S),
        )
        for q, margin in margins.items()
    ]
    return [
        *found,
        Response("total_cpu_cores", "CPU, app and whole mesh", "resource", "cores", 1.0, Margin(0.10)),
        Response("total_memory_bytes", "memory (PSS), app and whole mesh", "resource", "MiB", 1 / 2**20, Margin(0.10)),
        Response("proxy_cpu_cores", "CPU a proxy", "quality", "mcores", 1e3),
        Response("proxy_memory_bytes", "memory (PSS) a proxy", "quality", "MiB", 1 / 2**20),
        Response("config_time_s", "start until every proxy is configured", "quality", "s", 1.0),
        Response("config_cpu_s", "control-plane CPU to configure all", "quality", "s", 1.0),
        Response("config_bytes", "configuration pushed at the start", "quality", "MiB", 1 / 2**20),
        Response("push_time_s", "push of one endpoint to all proxies", "quality", "ms", 1e3),
        Response("push_bytes", "bytes pushed for one endpoint", "quality", "KiB", 1 / 2**10),
    ]


def _qualities() -> list[Response]:
    return [
        Response("latency_p50_first_half_s", "p50 latency, first half of the run", "quality", "ms", 1e3),
        Response("latency_p50_second_half_s", "p50 latency, second half of the run", "quality", "ms", 1e3),
        Response("achieved_rps", "achieved rate", "quality", "rps", 1.0),
        Response("achieved_ratio", "achieved/requested rate", "quality", "", 1.0),
        Response("error_ratio", "failed requests", "quality", "%", 100.0),
        Response("late_ratio", "late sends", "quality", "%", 100.0),
        Response("idle_before", "machine idle before the run", "quality", "%", 100.0),
        Response("machine_busy", "machine busy in the run", "quality", "%", 100.0),
        Response("machine_stolen", "CPU time that the host took in the run", "quality", "%", 100.0),
        Response("requests", "requests", "quality", "", 1.0),
    ]


REGISTRY: dict[str, Response] = {
    r.name: r for r in (*_latencies(), *_levels(), *_resources(), *_switches(), *_scale_out(), *_qualities())
}


def response(name: str) -> Response:
    """Look up a response by its full name or a short one (``p50``)."""
    if name in QUANTILES or name == "p99.9":
        name = f"latency_{name.replace('.', '')}_s"
    if name not in REGISTRY:
        judged = ", ".join(r.name for r in REGISTRY.values() if r.margin)
        raise UsageError(f"response {name!r} is not known; known are {judged}")
    return REGISTRY[name]


def applies(name: str, load: Load) -> bool:
    """Whether a response is judged at this load.

    A search is judged by the levels that it found and nothing else: it ends at a rate of each arm's own, and what
    was measured at different rates is not compared.
    """
    return (name in REGISTRY and REGISTRY[name].kind == "level") == load.search


def added_responses(extra: Mapping[str, Any], measured: Mapping[str, float]) -> dict[str, float]:
    """Responses of what a deployment says about itself: its own, sums over its endpoints, latency beyond known holds.

    Parameters
    ----------
    extra : mapping
        ``hold_s`` (what the application waits by design), ``endpoints``, ``proxies``, ``responses`` (by name).
    measured : mapping of str to float
        Responses of the run so far. Raw latencies stay what they are: a ratio of them would hide under the holds.
    """
    found = {name: float(value) for name, value in extra.get("responses", {}).items() if name in REGISTRY}
    hold = float(extra.get("hold_s", 0.0))
    for q in QUANTILES:
        raw, name = measured.get(f"latency_{q}_s", 0.0), f"latency_beyond_holds_{q}_s"
        if name in REGISTRY and 0 < hold < raw:
            found[name] = raw - hold
    for kind in ("cpu_cores", "memory_bytes") if "endpoints" in extra else ():
        path, proxies = measured.get(f"path_{kind}"), measured.get(f"data_plane_{kind}")
        if path is not None:
            found[f"total_{kind}"] = path + measured.get(f"control_plane_{kind}", 0.0)
        if proxies is not None and extra.get("proxies"):
            found[f"proxy_{kind}"] = proxies / extra["proxies"]
    return found


def default_margins() -> dict[str, Margin]:
    """Margins that METHOD declares by default, for every response that gets a verdict."""
    return {r.name: r.margin for r in REGISTRY.values() if r.margin is not None}
