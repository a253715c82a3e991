"""The run checks of the load, evaluated after a run and before any statistics.

A check passes if ``value`` is at most ``threshold`` (for the generator's CPU: below it). Its message advises what to do
next. A check that could not be measured passes with ``value`` None and a message. A failed check never drops a run: the
runner flags and repeats it.
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
    """The machine's counters over a run; None where they could not be read."""

    generator_cpu_s: float | None  # CPU seconds of all generators in the window
    window_s: float  # length of that window
    cpus: float  # cores that the generators may use
    throttled_s: float | None = None  # time for which the app was throttled by its CPU limit
    foreign_load: float | None = None  # share of the machine's CPU time used by programs that are not part of the run


def evaluate(
    measurement: Measurement, load: Load, gates: Gates, machine: Machine, *, disturbed: bool = False
) -> tuple[GateResult, ...]:
    """Evaluate one run against the declared thresholds; a closed loop has no schedule, so no rate and late checks.

    ``disturbed`` is True if a part was restarted on purpose, a change was made, or the rate rises until it is too high.
    Failures, broken connections and the lateness that they cause are then the outcome, so those checks are left out.
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
    # The events of streams do not wait for each other's arrival, so none of them is late behind another.
    checks = (_rate, _generator_late) if load.streams else (_rate, _late, _generator_late)
    scheduled = [check(measurement, load, gates) for check in checks] if isinstance(load, OpenLoad) else []
    if load.streams:
        scheduled += [_streams(measurement), _order(measurement)]
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
        f"achieved {ratio * load.rps:.4g} of {load.rps:g} rps ({ratio:.1%}), so it is saturated at this rate; "
        "lower rps, add connections, or search the capacity first"
    )
    return _result("rate", value, gates.rate_tolerance, message)


def _late(measurement: Measurement, load: OpenLoad, gates: Gates) -> GateResult:
    value = measurement.responses.get("late_ratio", 1.0)
    message = (
        f"{value:.1%} of the sends were later than their connection's interval because earlier answers were late; "
        "add connections, lower rps, and read the corrected latencies"
    )
    return _result("late", value, gates.late_ratio, message)


def _generator_late(measurement: Measurement, load: OpenLoad, gates: Gates) -> GateResult:
    """Check late sends that no late answer explains; if late answers alone fail the check before, this one passes."""
    generator, target = (measurement.responses.get(name, 0.0) for name in ("generator_late_ratio", "late_ratio"))
    passed = generator + target <= gates.late_ratio or target > gates.late_ratio
    interval_ms = 1e3 * load.connections / load.rps
    sender, remedy = "load generator", "add connections or generators"
    if load.streams:
        sender, remedy = "event server", "lower rps"
    message = (
        f"{generator:.1%} of the sends left late on a free connection: the {sender}'s timers wake up only within "
        f"about 1 ms, and a connection's interval is {interval_ms:.3g} ms; {remedy}"
    )
    return _result("generator late", generator, gates.late_ratio, message, passed)


def _streams(measurement: Measurement) -> GateResult:
    lost = measurement.responses.get("streams_lost", 0.0)
    message = (
        f"{lost:.0f} streams ended before their last event ({failures.in_words(measurement.failures)}); see the "
        "components' logs, and raise limits of a stream's duration or idle time"
    )
    return _result("streams", lost, 0.0, message)


def _order(measurement: Measurement) -> GateResult:
    number = measurement.failures.get(failures.DISORDER, 0)
    message = (
        f"{number} events failed because their stream delivered events out of sequence; "
        "something on the path changes, repeats or drops events"
    )
    return _result("order", float(number), 0.0, message)


def _errors(measurement: Measurement, gates: Gates) -> GateResult:
    value = measurement.responses["error_ratio"]
    kinds = failures.in_words(measurement.failures)
    message = f"{value:.2%} of the requests failed ({kinds}); see the components' logs"
    return _result("errors", value, gates.error_ratio, message)


def _generator_cpu(gates: Gates, cpu_s: float | None, window_s: float, cpus: float) -> GateResult:
    if cpu_s is None or window_s <= 0 or cpus <= 0:
        return _result("generator CPU", None, gates.generator_cpu, "not measured")
    value = cpu_s / (window_s * cpus)
    message = (
        f"the load generator used {value:.0%} of its {cpus:g} cores, so it measures itself; "
        "lower rps, give it more cores, or set generators = 2 or more"
    )
    return _result("generator CPU", value, gates.generator_cpu, message, value < gates.generator_cpu)


def _foreign_load(gates: Gates, share: float | None) -> tuple[GateResult, ...]:
    """Check other programs' use of the CPU, which keeps cores awake or busy and so changes latencies unevenly."""
    if gates.foreign_load is None:
        return ()
    if share is None:
        message = "not measured: a node's total includes the node's own daemons"
        return (_result("foreign load", None, gates.foreign_load, message),)
    message = (
        f"other programs used {share:.0%} of the machine's CPU time; end them (`top` lists them), or measure on a "
        "machine of its own"
    )
    return (_result("foreign load", share, gates.foreign_load, message),)


def _throttling(throttled_s: float | None) -> GateResult:
    if throttled_s is None:
        return _result("throttling", None, 0.0, "not measured: there is no throttling counter")
    message = f"the app was throttled for {throttled_s:.3g} s, so its CPU limit was measured; raise or remove the limit"
    return _result("throttling", throttled_s, 0.0, message)


def _ended(measurement: Measurement, load: Load) -> GateResult:
    # An open rate that ends early fails the rate check; of a closed loop only the duration shows it.
    stopped = [isinstance(load, ClosedLoop) and r.duration_s < _WHOLE * load.call_s for r in measurement.generators]
    codes = [record.exit_code for record in measurement.generators]
    value = float(sum(code != 0 or early for code, early in zip(codes, stopped, strict=True)))
    lasted = ", ".join(f"{record.duration_s:.3g}" for record in measurement.generators)
    message = (
        f"exit codes {codes}, duration {lasted} of {load.duration_s:g} s: a generator was interrupted or failed; "
        "read its output in the run's logs"
    )
    return _result("generator ended well", value, 0.0, message)


def _connections(measurement: Measurement, load: Load) -> GateResult:
    parts = max(1, len(measurement.generators) // load.generators)
    requested = [*split_connections(load)] * parts
    used = [record.connections for record in measurement.generators]
    missing = sum(abs(a - b) for a, b in zip(requested, used, strict=False)) + abs(len(requested) - len(used))
    message = f"connections per generator: {requested} requested, {used} used; measure longer or request fewer"
    return _result("connections", float(missing), 0.0, message)


def _sockets(measurement: Measurement, load: Load) -> GateResult:
    """Check the sockets opened: one per connection with keep-alive, one per request without.

    fortio opens a new socket after a failed request, and also counts the sockets of its own warm-up call.
    """
    records = measurement.generators
    if measurement.generators and load.protocol == "mixed":
        records = tuple(record for record in records if record.sockets is not None)  # gRPC's sockets are not counted
    if not records or any(record.sockets is None for record in records):
        return GateResult(
            "sockets", None, 0.0, True, "not measured: the generator does not count this protocol's sockets"
        )
    sockets = sum(record.sockets or 0 for record in records)
    connections = sum(record.connections for record in records)
    if load.keepalive:
        allowed = sum(record.errors for record in records)
        message = (
            f"{sockets} sockets for {connections} kept-alive connections and {allowed} failed requests: something "
            "closes connections; raise its limit of requests or idle time, or set keepalive = False"
        )
        return _result("sockets", float(max(0, sockets - connections)), float(allowed), message)
    needed = sum(record.requests for record in records) + connections
    message = (
        f"{sockets} sockets instead of {needed} ({connections} of them for fortio's warm-up call): connections were "
        "reused, so this is not the declared load; check that the target speaks HTTP/1.1"
    )
    return _result("sockets", float(max(0, needed - sockets)), 0.0, message)


def _result(name: str, value: float | None, threshold: float, message: str, passed: bool | None = None) -> GateResult:
    """Return the result; without ``passed`` a value is compared with the threshold, and None was not measured."""
    if value is None:
        return GateResult(name, None, threshold, True, message)
    if passed is None:
        passed = value <= threshold + 1e-12  # allows for floating-point rounding in ratios of counts
    return GateResult(name, value, threshold, passed, "" if passed else message)
