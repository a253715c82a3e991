"""What each treatment proves of itself, before and after the load: effects, asked for from inside and outside the mesh.

A proof never asks for the configuration that was meant to cause an effect: it sends the request that must be
refused, reads what the app saw, and counts what the proxies counted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshtrial.envoy.tokens import Tokens
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.kubernetes import meshversions, probing
from meshtrial.testbed.kubernetes.apps import App
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.manifests import containers
from meshtrial.testbed.kubernetes.meshdata import PROOFS, Counter, Feature, Lines, Mesh, Tells
from meshtrial.testbed.kubernetes.resources import container_names
from meshtrial.testbed.kubernetes.workload import Rendered

# Headers that a proxy leaves on a request, of every mesh here.
_PROXY_HEADERS = re.compile(r"(?mi)^(x-forwarded-client-cert|x-envoy-[\w-]+|l5d-[\w-]+|x-request-id|via): .*$")
_LOOKED_AT = 500  # log lines
_LOG_PATIENCE_S = 12.0  # Envoy writes its log when 64 KiB are full, or every 10 s
_PATIENCE_S = 15.0  # the probe's node may learn of a new Service later than the generators' node


@dataclass
class Subject:
    """One standing deployment, as its proofs see it.

    Attributes
    ----------
    pods : mapping
        ``app``, ``load``, ``waypoint`` and the components of agents and control plane to their pods.
    told : mapping
        What parts of the mesh tell of their versions (:func:`meshversions.told`).
    """

    cluster: Cluster
    rendered: Rendered
    mesh: Mesh | None
    features: Sequence[Feature]
    tokens: Tokens | None
    pods: Mapping[str, Sequence[Json]]
    load: PodRef
    probe: PodRef
    before: dict[str, float] = field(default_factory=dict)
    told: Mapping[str, tuple[Tells, list[str]]] = field(default_factory=dict)


def prove(subject: Subject, phase: str, requests: int) -> tuple[Proof, ...]:
    """Every proof of the treatment; one that could not be made has failed, with its reason."""
    todo: list[tuple[str, Callable[[], list[Proof]]]] = []
    if subject.mesh is None:
        todo.append(("no proxy in the path", lambda: _no_proxy(subject, phase)))
    else:
        asked, _ = named(subject.mesh, subject.features, subject.rendered.app)
        todo += [(name, lambda n=name, e=expect: MAKERS[n](subject, phase, e)) for name, expect in asked]  # type: ignore[misc]
        bare = {feature.bare for feature in subject.features}
        evidence = [
            *subject.mesh.counters,
            *(c for f in subject.features for c in f.counters),
            *policy_counters(subject),
        ]
        # Pods that stay outside of the mesh have no proxy that would count.
        evidence = [counter for counter in evidence if counter.pods not in bare]
        todo += [(c.name, lambda c=c: _counter(subject, phase, requests, c)) for c in evidence]  # type: ignore[misc]
        if subject.mesh.declared is not None:
            todo.append((f"version {subject.mesh.declared.version}", lambda: _version(subject, phase)))
        lines = [line for feature in subject.features for line in feature.logs if line.pods not in bare]
        todo += [(item.name, lambda i=item: _lines(subject, phase, requests, i)) for item in lines]  # type: ignore[misc]
    found: list[Proof] = []
    for name, work in todo:
        try:
            found += work()
        except TestbedError as error:
            found.append(Proof(name, phase, False, "an answer", str(error)[:300]))
    return tuple(found)


def named(
    mesh: Mesh, features: Sequence[Feature], app: App
) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
    """The named proofs of a treatment on this application, with what each expects; and those it cannot make.

    A proof that needs an echo of the request's headers cannot be made on an application without one. Whether enough
    is left is decided before the study (:func:`meshtrial.testbed.kubernetes.workload.provable`).
    """
    chosen = {feature.name for feature in features}
    wanted: dict[tuple[str, str], Mapping[str, Any]] = {}
    one_sided = any(feature.bare for feature in features)
    for name in mesh.proofs:
        if not (one_sided and name == "proxied"):
            wanted[name, str(mesh.expect)] = mesh.expect
    for feature in mesh.features.values():
        for name in feature.proofs if feature.name in chosen else feature.absent_proofs:
            # Two features may ask one thing with one expectation: it is asked once.
            wanted[name, str(feature.expect)] = feature.expect
    asked = [(name, expect) for (name, _), expect in wanted.items() if app.gives(PROOFS[name])]
    return asked, tuple(dict.fromkeys(name for name, _ in wanted if not app.gives(PROOFS[name])))


def _no_proxy(subject: Subject, phase: str) -> list[Proof]:
    extra = [f"{pod['metadata']['name']}/{name}" for pod in _workload(subject) for name in container_names(pod)]
    planned = {str(c["name"]) for o in subject.rendered.objects for c in containers(o)}
    injected = [name for name in extra if name.rsplit("/", 1)[1] not in planned]
    proofs = [Proof("no proxy container", phase, not injected, "none", ", ".join(injected[:3]) or "none")]
    if subject.rendered.app.headers_path:
        answer = _inside(subject, subject.rendered.app.headers_path)
        seen = ", ".join(match.group(0).strip() for match in _PROXY_HEADERS.finditer(answer.body))
        passed = answer.status == 200 and not seen
        proofs.append(Proof("no proxy header", phase, passed, "HTTP 200, none", f"{answer.detail}, {seen or 'none'}"))
    return proofs


def _version(subject: Subject, phase: str) -> list[Proof]:
    assert subject.mesh is not None
    return meshversions.prove(subject.mesh, subject.pods, subject.told, phase)


def _proxied(subject: Subject, phase: str, _expect: Mapping[str, Any]) -> list[Proof]:
    assert subject.mesh is not None
    without = [
        pod["metadata"]["name"]
        for pod in _workload(subject)
        if not set(subject.mesh.proxy_containers) & set(container_names(pod))
    ]
    total = len(_workload(subject))
    seen = f"{total - len(without)} of {total}" + (f", not {without[0]}" if without else "")
    return [Proof("a proxy in every pod", phase, not without and total > 0, f"{total} of {total}", seen)]


def _one_sided(subject: Subject, phase: str, _expect: Mapping[str, Any]) -> list[Proof]:
    assert subject.mesh is not None
    proxies, found = set(subject.mesh.proxy_containers), []
    bare = {feature.bare for feature in subject.features}
    for part, name in (("app", "the application's"), ("load", "the generators'")):
        pods = subject.pods.get(part, ())
        having = sum(bool(proxies & set(container_names(pod))) for pod in pods)
        wanted = 0 if part in bare else len(pods)
        proof = f"a proxy in {'none' if part in bare else 'each'} of {name} pods"
        found.append(Proof(proof, phase, having == wanted and bool(pods), f"{wanted} of {len(pods)}", str(having)))
    return found


def _plaintext_refused(subject: Subject, phase: str, _expect: Mapping[str, Any]) -> list[Proof]:
    answer = _outside(subject)
    return [Proof("plaintext from outside the mesh refused", phase, answer.refused, "refused", answer.detail)]


def _plaintext_accepted(subject: Subject, phase: str, _expect: Mapping[str, Any]) -> list[Proof]:
    answer = _outside(subject)
    return [Proof("plaintext from outside the mesh accepted", phase, answer.status == 200, "HTTP 200", answer.detail)]


def _peer_identity(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    answer = _inside(subject, subject.rendered.app.headers_path)
    found = re.search(str(expect["header"]), answer.body)
    seen = found.group(0).strip() if found else f"{answer.detail}, no such header"
    return [Proof("the generator's identity seen by the app", phase, found is not None, "its SPIFFE name", seen[:300])]


def _no_peer_identity(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    answer = _inside(subject, subject.rendered.app.headers_path)
    found = re.search(str(expect.get("header", "(?mi)^X-Forwarded-Client-Cert:.*URI=")), answer.body)
    passed = answer.status == 200 and found is None
    seen = found.group(0).strip() if found else f"{answer.detail}, none"
    return [Proof("no identity between the proxies", phase, passed, "HTTP 200, none", seen[:300])]


def _jwt(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    assert subject.tokens is not None
    bad = [int(code) for code in expect["bad"]]
    missing = [int(code) for code in expect["missing"]]
    return [
        _status(subject, phase, "JWT: no token", (), missing),
        _status(subject, phase, "JWT: forged token", _bearer(subject.tokens.forged), bad),
        _status(subject, phase, "JWT: expired token", _bearer(subject.tokens.expired), bad),
        _status(subject, phase, "JWT: another audience's token", _bearer(subject.tokens.foreign), [401, 403]),
        _status(subject, phase, "JWT: good token", subject.tokens.headers, [200]),
    ]


def _opa(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    assert subject.tokens is not None
    refusals = [int(code) for code in expect["missing"]]
    bad = [int(code) for code in expect["bad"]]
    return [
        _status(subject, phase, "OPA: no token", (), [*refusals, *([401] if len(bad) > 1 else [])]),
        _status(subject, phase, "OPA: forged token", _bearer(subject.tokens.forged), bad),
        _status(subject, phase, "OPA: a method that is not allowed", subject.tokens.headers, [403], "DELETE"),
        _status(subject, phase, "OPA: good token", subject.tokens.headers, [200]),
    ]


def _denied(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    path, codes = str(expect["path"]), [int(code) for code in expect["denied"]]
    return [_status(subject, phase, f"{path} denied", subject.rendered.target.headers, codes, path=path)]


def _allowed(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    path = str(expect["path"])
    return [_status(subject, phase, f"{path} allowed", subject.rendered.target.headers, [200], path=path)]


def _scoped(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    """A proxy that was not told of a service sends plain text to it, which the service's own proxy refuses."""
    answer = _beyond(subject, expect)
    return [Proof("a tier that is not called is unknown to the proxy", phase, answer.refused, "refused", answer.detail)]


def _unscoped(subject: Subject, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    answer = _beyond(subject, expect)
    return [
        Proof("a tier that is not called is known to the proxy", phase, answer.status == 200, "HTTP 200", answer.detail)
    ]


def _beyond(subject: Subject, expect: Mapping[str, Any]) -> probing.Answer:
    service, _, rest = str(expect["beyond"]).partition(":")
    host = f"{service}.{subject.rendered.namespace}.svc.cluster.local"
    return probing.request(subject.cluster, subject.load, f"http://{host}:{rest}", subject.rendered.target.headers)


MAKERS: dict[str, Callable[[Subject, str, Mapping[str, Any]], list[Proof]]] = {
    "one-sided": _one_sided,
    "proxied": _proxied,
    "plaintext-refused": _plaintext_refused,
    "plaintext-accepted": _plaintext_accepted,
    "peer-identity": _peer_identity,
    "no-peer-identity": _no_peer_identity,
    "jwt": _jwt,
    "opa": _opa,
    "denied": _denied,
    "allowed": _allowed,
    "scoped": _scoped,
    "unscoped": _unscoped,
}


def _status(
    subject: Subject,
    phase: str,
    name: str,
    headers: Sequence[tuple[str, str]],
    allowed: Sequence[int],
    method: str = "",
    path: str = "",
) -> Proof:
    url = subject.rendered.inside + (path or subject.rendered.app.path)
    answer = probing.request(subject.cluster, subject.load, url, headers, method)
    expected = "HTTP " + " or ".join(str(code) for code in dict.fromkeys(allowed))
    return Proof(name, phase, answer.status in allowed, expected, answer.detail)


def policy_counters(subject: Subject) -> list[Counter]:
    """What shows that the policy servers of a treatment decided, read where they stand."""
    if subject.rendered.policy_counter is None:
        return []  # no policy server in this treatment
    url, pattern = subject.rendered.policy_counter
    pods = "waypoint" if subject.mesh is not None and subject.mesh.waypoints else "app"
    return [Counter("decisions of the policy servers", pods, url, pattern)]


def _counter(subject: Subject, phase: str, requests: int, counter: Counter) -> list[Proof]:
    addresses = [str(pod["status"].get("podIP", "")) for pod in subject.pods.get(counter.pods, ())]

    def read() -> float:
        return probing.total(subject.cluster, subject.probe, addresses, counter.url, counter.pattern)

    if phase == "before":
        subject.before[counter.name] = read()
        return []
    wanted = {"requests": float(requests), "some": 1.0, "none": 0.0}[counter.growth]
    value = probing.grown(read, subject.before.get(counter.name, 0.0), wanted)
    if counter.growth == "none":
        return [Proof(counter.name, phase, value == 0, "0", f"{value:g}")]
    return [Proof(counter.name, phase, value >= wanted > 0, f"at least {wanted:g}", f"{value:g}")]


def _lines(subject: Subject, phase: str, requests: int, lines: Lines) -> list[Proof]:
    if phase == "before":
        return []
    wanted = min(requests, _LOOKED_AT)

    def read() -> float:
        found = 0
        for pod in subject.pods.get(lines.pods, ()):
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
            text = subject.cluster.text(path, container=lines.container, tailLines=2 * _LOOKED_AT)
            found += len(re.findall(lines.pattern, text))
        return found

    found = int(probing.grown(read, 0, wanted, _LOG_PATIENCE_S))
    return [Proof(lines.name, phase, found >= wanted > 0, f"at least {wanted} lines", f"{found} lines")]


def _inside(subject: Subject, path: str) -> probing.Answer:
    return probing.request(
        subject.cluster, subject.load, subject.rendered.inside + path, subject.rendered.target.headers
    )


def _outside(subject: Subject) -> probing.Answer:
    """The service as a stranger sees it; asked again while nobody is there, which proves nothing either way."""
    url = subject.rendered.direct + subject.rendered.app.path
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        answer = probing.request(subject.cluster, subject.probe, url, subject.rendered.target.headers)
        if answer.status or answer.refused or time.monotonic() > deadline:
            return answer
        time.sleep(0.5)


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("Authorization", f"Bearer {token}"),)


def _workload(subject: Subject) -> list[Json]:
    return [*subject.pods.get("app", ()), *subject.pods.get("load", ())]
