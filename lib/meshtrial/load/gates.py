"""The gates that are about load, evaluated after a run and before any statistic.

``value`` passes while it is at most ``threshold`` (the generator's CPU: while it is below). A message
says what to do next; a gate that could not be measured passes with ``value`` None and says so. A failed
gate never drops a run: the runner flags and repeats it.
"""

from dataclasses import dataclass

from meshtrial.design.load import ClosedLoop, Load, OpenLoad
from meshtrial.design.shares import split_connections
from meshtrial.design.study import Gates
from meshtrial.load import failures
from meshtrial.load.ingest import Measurement
from meshtrial.records.schema import GateResult

_WHOLE = 0.98


@dataclass(frozen=True)
class Machine:
    """What the machine's counters said of a run; None where they could not be read."""

    generator_cpu_s: float | None  # CPU seconds of all generators in the window
    window_s: float  # length of that window
    cpus: float  # cores that the generators may use
    throttled_s: float | None = None  # time the app spent under CFS throttling
    foreign_load: float | None = None  # share of the machine's CPU time that programs used, the run's own left out


def evaluate(
    measurement: Measurement, load: Load, gates: Gates, machine: Machine, *, disturbed: bool = False
) -> tuple[GateResult, ...]:
    """Hold one run against the declared thresholds; a closed loop has no rate and late gate, for it has no schedule.

    ``disturbed``: a part was restarted on purpose, or the rate rises until something gives. Failures, broken
    connections and what they make late are then the outcome, and no gate takes a run away for them.
    """
    instrument = (
        _generator_cpu(gates, machine.generator_cpu_s, machine.window_s, machine.cpus),
        *_foreign_load(gates, machine.foreign_load),
        _throttling(machine.throttled_s),
        _ended(measurement, load),
        _connections(measurement, load),
    )
    if disturbed:
        return instrument
    scheduled = (
        [gate(measurement, load, gates) for gate in (_rate, _late, _generator_late)]
        if isinstance(load, OpenLoad)
        else []
    )
    return (
        *scheduled,
        _errors(measurement, gates),
        *instrument,
        _sockets(measurement, load),
    )


def _rate(measurement: Measurement, load: OpenLoad, gates: Gates) -> GateResult:
    ratio = measurement.responses.get("achieved_ratio", 0.0)
    value = abs(ratio - 1.0)
    message = (
        f"achieved {ratio * load.rps:.4g} of {load.rps:g} rps ({ratio:.1%}): saturated at this rate; "
        "lower rps, add connections, or search the capacity first"
    )
    return _result("rate", value, gates.rate_tolerance, message)


def _late(measurement: Measurement, load: OpenLoad, gates: Gates) -> GateResult:
    value = measurement.responses.get("late_ratio", 1.0)
    message = (
        f"{value:.1%} of the sends were later than their connection's interval: stalls hold the schedule up; "
        "add connections, lower rps, and read the corrected latencies"
    )
    return _result("late", value, gates.late_ratio, message)


def _generator_late(measurement: Measurement, load: OpenLoad, gates: Gates) -> GateResult:
    """Late sends that no late answer explains; where the answers alone fail the gate before, it speaks alone."""
    own, behind = (measurement.responses.get(name, 0.0) for name in ("generator_late_ratio", "late_ratio"))
    held = own + behind <= gates.late_ratio or behind > gates.late_ratio
    interval_ms = 1e3 * load.connections / load.rps
    message = (
        f"{own:.1%} of the sends left late on a free connection: the load generator's own timers, which wake up within "
        f"about 1 ms, beside an interval of {interval_ms:.3g} ms a connection; add connections or generators"
    )
    return GateResult("generator late", own, gates.late_ratio, held, "" if held else message)


def _errors(measurement: Measurement, gates: Gates) -> GateResult:
    value = measurement.responses["error_ratio"]
    said = failures.in_words(measurement.failures)
    message = f"{value:.2%} of the requests failed ({said}); see the components' logs"
    return _result("errors", value, gates.error_ratio, message)


def _generator_cpu(gates: Gates, cpu_s: float | None, window_s: float, cpus: float) -> GateResult:
    if cpu_s is None or window_s <= 0 or cpus <= 0:
        return GateResult("generator CPU", None, gates.generator_cpu, True, "not measured")
    value = cpu_s / (window_s * cpus)
    if value < gates.generator_cpu:
        return GateResult("generator CPU", value, gates.generator_cpu, True)
    message = (
        f"the load generator used {value:.0%} of its {cpus:g} cores, so it measures itself; "
        "lower rps, give it more cores, or set generators = 2 or more"
    )
    return GateResult("generator CPU", value, gates.generator_cpu, False, message)


def _foreign_load(gates: Gates, share: float | None) -> tuple[GateResult, ...]:
    """Other programs: cores that never sleep answer faster, busy ones later, and not to every treatment alike."""
    if gates.foreign_load is None:
        return ()
    if share is None:
        why = "not readable here: a node's total holds its own daemons too"
        return (GateResult("foreign load", None, gates.foreign_load, True, why),)
    message = (
        f"other programs used {share:.0%} of the machine's CPU time: end them, or measure on a machine of its own "
        "(`top` shows them)"
    )
    return (_result("foreign load", share, gates.foreign_load, message),)


def _throttling(throttled_s: float | None) -> GateResult:
    if throttled_s is None:
        return GateResult("throttling", None, 0.0, True, "no throttling counter here")
    message = f"the app was throttled for {throttled_s:.3g} s: that measures its CPU limit; raise or remove the limit"
    return _result("throttling", throttled_s, 0.0, message)


def _ended(measurement: Measurement, load: Load) -> GateResult:
    # An open rate that is cut short fails the rate; a closed loop has only its duration to tell.
    stopped = [isinstance(load, ClosedLoop) and r.duration_s < _WHOLE * load.call_s for r in measurement.generators]
    codes = [record.exit_code for record in measurement.generators]
    value = float(sum(code != 0 or early for code, early in zip(codes, stopped, strict=True)))
    lasted = ", ".join(f"{record.duration_s:.3g}" for record in measurement.generators)
    message = (
        f"exit codes {codes}, lasted {lasted} of {load.duration_s:g} s: interrupted or failed; "
        "read the generator's text in the run's logs"
    )
    return _result("generator ended well", value, 0.0, message)


def _connections(measurement: Measurement, load: Load) -> GateResult:
    parts = max(1, len(measurement.generators) // load.generators)
    asked = [*split_connections(load)] * parts
    used = [record.connections for record in measurement.generators]
    missing = sum(abs(a - b) for a, b in zip(asked, used, strict=False)) + abs(len(asked) - len(used))
    message = f"asked for {asked} connections a generator, used {used}: measure longer or ask for fewer"
    return _result("connections", float(missing), 0.0, message)


def _sockets(measurement: Measurement, load: Load) -> GateResult:
    """Kept alive: as many sockets as connections. Closing: one a request, else it is not really closing.

    fortio opens a new socket after a failed request, and counts the sockets of its own warm-up call.
    """
    records = measurement.generators
    if measurement.generators and load.protocol == "mixed":
        records = tuple(record for record in records if record.sockets is not None)  # HTTP's; gRPC's are not counted
    if not records or any(record.sockets is None for record in records):
        return GateResult("sockets", None, 0.0, True, "the generator does not count sockets with this protocol")
    sockets = sum(record.sockets or 0 for record in records)
    connections = sum(record.connections for record in records)
    if load.keepalive:
        allowed = sum(record.errors for record in records)
        message = (
            f"{sockets} sockets for {connections} kept-alive connections and {allowed} failed requests: something "
            "closes connections; raise its limit of requests or idle time, or declare keepalive = False"
        )
        return _result("sockets", float(max(0, sockets - connections)), float(allowed), message)
    needed = sum(record.requests for record in records) + connections
    message = (
        f"{sockets} sockets where {needed} were due ({connections} of them for fortio's warm-up call): "
        "connections were reused, so the run is not what its load says; check that the target speaks HTTP/1.1"
    )
    return _result("sockets", float(max(0, needed - sockets)), 0.0, message)


def _result(name: str, value: float, threshold: float, message: str) -> GateResult:
    # The last digits of a ratio of counts are noise of floating point, not of the run.
    passed = value <= threshold + 1e-12
    return GateResult(name, value, threshold, passed, "" if passed else message)
