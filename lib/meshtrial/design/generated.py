"""Systems that are drawn from a seed, to be measured and compared with what was predicted for them.

A load generator, ``ingress``, calls the first service of a chain, a fan-out or a tree. A service answers after its
calls, which follow one another or are made at the same time. Except in a chain, some calls belong to every second or
fourth request only; they are made after the answer, like those that write a log, so that no path contains them.

On a cluster the services are fortio, which makes all calls of a service at the same time and for every request. Systems
for a cluster are drawn so: the same seed has other calls there.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import yaml

from meshtrial.design.study import is_system
from meshtrial.design.system import Call, CallStep, Parallel, Step, System, system_of
from meshtrial.errors import UsageError

INGRESS = "ingress"
PATH = "request"  # the name of the one path: what the load generator waits for
SHAPES = ("chain", "fan-out", "tree")
FEWEST, MOST = 3, 20  # services, without the load generator
SYSTEMS = "systems"  # the key in `Study.options` of the sealed systems by name
CONNECTIONS = 4  # of a service to each callee
_EVERY = (1, 1, 1, 1, 2, 4)  # one n is drawn for each call, which is made for every n-th request
_LEAST_SHARE = 1 / 4  # least rate of a service, as a share of the load generator's rate
_AT_ONCE = (1, 2, 3)  # calls of one step; more would wait for a core and not for each other


def generated(seed: int, rps: float, connections: int, on_cluster: bool = False) -> System:
    """Return the system of a seed under a rate and a number of connections of its load generator."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[rng.integers(len(SHAPES))]
    names = [f"service-{number}" for number in range(1, int(rng.integers(FEWEST, MOST + 1)) + 1)]
    calls = [Call(INGRESS, names[0], rps, connections=connections)]
    rates, awaited = {names[0]: rps}, {names[0]: True}
    for index, name in enumerate(names[1:], start=1):
        caller = names[{"chain": index - 1, "fan-out": 0, "tree": int(rng.integers(index))}[shape]]
        every = _EVERY[rng.integers(len(_EVERY))]
        if on_cluster or shape == "chain" or rates[caller] / every < rps * _LEAST_SHARE:
            every = 1
        rates[name], awaited[name] = rates[caller] / every, every == 1
        # fortio opens a connection to each callee for every request that it has at the same time.
        calls.append(Call(caller, name, rates[name], connections=connections if on_cluster else CONNECTIONS))
    at_once = {name: len(names) if on_cluster else int(rng.choice(_AT_ONCE)) for name in names}

    def steps(call: Call) -> Iterator[Step]:
        yield CallStep(*call.pair)
        onward = [one for one in calls if one.caller == call.callee and awaited[one.callee]]
        width = at_once[call.callee]
        for first in range(0, len(onward), width):
            branches = [tuple(steps(one)) for one in onward[first : first + width]]
            yield from branches[0] if len(branches) == 1 else (Parallel(tuple(branches)),)

    return System({}, tuple(calls), {PATH: tuple(steps(calls[0]))})


def sealed_systems(systems: Mapping[str, System]) -> dict[str, object]:
    """Return an option of a study that holds systems by name, as plain data."""
    return {SYSTEMS: {name: yaml.safe_load(system.to_yaml()) for name, system in systems.items()}}


def systems_of(options: Mapping[str, object]) -> dict[str, System]:
    """Return the systems that are sealed in a study's options, by the name of their application."""
    sealed = options.get(SYSTEMS, {})
    return {name: system_of(data) for name, data in sealed.items()} if isinstance(sealed, Mapping) else {}


def system_of_app(systems: Mapping[str, System], app: str) -> System | None:
    """Return the system that an application is; None for another application, UsageError if the plan lacks it."""
    if is_system(app) and app not in systems:
        raise UsageError(f"app {app}: generated systems belong to the study prediction, whose plan holds them")
    return systems.get(app)
