"""What each treatment proves of itself, before and after the load: effects, asked for from inside and outside the mesh.

A proof never asks for the configuration that was meant to cause an effect: it sends the request that must be
refused, reads what the app saw, and counts what the proxies counted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed import sampled
from meshtrial.testbed.cases import Case, forbidden_method, token_cases
from meshtrial.testbed.kubernetes import meshversions, probing
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.manifests import containers
from meshtrial.testbed.kubernetes.meshdata import PROOFS, Counter, Lines, VersionProbe
from meshtrial.testbed.kubernetes.pods import container_names, log_of
from meshtrial.testbed.kubernetes.workload import Rendered, Setup

# Headers that a proxy leaves on a request, of every mesh here.
_PROXY_HEADERS = re.compile(r"(?mi)^(x-forwarded-client-cert|x-envoy-[\w-]+|l5d-[\w-]+|x-request-id|via): .*$")
_LOOKED_AT = 500  # log lines
_LOG_PATIENCE_S = 12.0  # Envoy writes its log when 64 KiB are full, or every 10 s
_PATIENCE_S = 15.0  # the probe's node may learn of a new Service later than the generators' node


@dataclass
class ProofContext:
    """One standing deployment, as its proofs see it."""

    cluster: Cluster
    rendered: Rendered
    pods: Mapping[str, Sequence[Json]]  # of app, load, waypoint and the components of agents and control plane
    load: PodRef
    probe: PodRef
    before: dict[str, float] = field(default_factory=dict)
    told: Mapping[str, tuple[VersionProbe, list[str]]] = field(
        default_factory=dict
    )  # of versions, by meshversions.told

    @property
    def setup(self) -> Setup:
        """What it was made from."""
        return self.rendered.setup

    @property
    def bare(self) -> set[str]:
        """Pods that stay outside of the mesh; they have no proxy that would count."""
        return {feature.bare for feature in self.setup.features}

    @property
    def workload(self) -> list[Json]:
        """Pods of the application and the generators."""
        return [*self.pods.get("app", ()), *self.pods.get("load", ())]

    def proxied(self, pod: Json) -> bool:
        """Whether a pod has a proxy of the mesh."""
        return self.setup.mesh is not None and bool({*self.setup.mesh.proxy_containers} & {*container_names(pod)})


Maker = Callable[[ProofContext, str, Mapping[str, Any]], list[Proof]]


def prove(subject: ProofContext, phase: str, requests: int) -> tuple[Proof, ...]:
    """Every proof of the treatment; one that could not be made has failed, with its reason."""
    mesh, features = subject.setup.mesh, subject.setup.features
    todo: list[tuple[str, Callable[[], list[Proof]]]] = []
    if mesh is None:
        todo.append(("no proxy in the path", lambda: _no_proxy(subject, phase)))
    else:
        todo += [(name, partial(MAKERS[name], subject, phase, expect)) for name, expect in named(subject.setup)[0]]
        counters = {c.name: c for c in (*mesh.counters, *(c for f in features for c in f.counters))}
        counters |= {c.name: c for c in policy_counters(subject)}
        for name, counter in counters.items():
            if counter.pods not in subject.bare:
                whole = counters.get(counter.of)
                todo.append((name, partial(_counter, subject, phase, requests, counter, whole)))
        if mesh.declared is not None:
            version = partial(meshversions.prove, mesh, subject.pods, subject.told, phase)
            todo.append((f"version {mesh.declared.version}", version))
        lines = [line for feature in features for line in feature.logs if line.pods not in subject.bare]
        todo += [(item.name, partial(_lines, subject, phase, requests, item)) for item in lines]
    proofs: list[Proof] = []
    for name, work in todo:
        try:
            proofs += work()
        except TestbedError as error:
            proofs.append(Proof(name, phase, False, "an answer", str(error)[:300]))
    return tuple(proofs)


def named(setup: Setup) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
    """The named proofs of a treatment on this application, with what each expects; and those it cannot make.

    A proof that needs an echo of the request's headers cannot be made on an application without one. Whether enough
    is left is decided before the study (:func:`meshtrial.testbed.kubernetes.workload.render`).
    """
    mesh, app = setup.mesh, setup.app
    if mesh is None:
        return [], ()
    wanted: dict[tuple[str, str], Mapping[str, Any]] = {}
    one_sided = any(feature.bare for feature in setup.features)
    for name in mesh.proofs:
        if not (one_sided and name == "proxied"):
            wanted[name, str(mesh.expect)] = mesh.expect
    for feature in mesh.features.values():
        for name in feature.proofs if feature in setup.features else feature.absent_proofs:
            # Two features may ask one thing with one expectation: it is asked once.
            wanted[name, str(feature.expect)] = feature.expect
    asked = [(name, expect) for (name, _), expect in wanted.items() if app.gives(PROOFS[name])]
    return asked, tuple(dict.fromkeys(name for name, _ in wanted if not app.gives(PROOFS[name])))


def _no_proxy(subject: ProofContext, phase: str) -> list[Proof]:
    planned = {str(c["name"]) for o in subject.rendered.objects for c in containers(o)}
    there = [(pod["metadata"]["name"], name) for pod in subject.workload for name in container_names(pod)]
    injected = [f"{pod}/{name}" for pod, name in there if name not in planned]
    proofs = [Proof("no proxy container", phase, not injected, "none", ", ".join(injected[:3]) or "none")]
    if subject.setup.app.headers_path:
        answer = _echo(subject)
        seen = ", ".join(match.group(0).strip() for match in _PROXY_HEADERS.finditer(answer.body))
        passed = answer.status == 200 and not seen
        proofs.append(Proof("no proxy header", phase, passed, "HTTP 200, none", f"{answer.detail}, {seen or 'none'}"))
    return proofs


def _proxied(subject: ProofContext, phase: str, _expect: Mapping[str, Any]) -> list[Proof]:
    total = len(subject.workload)
    without = [pod["metadata"]["name"] for pod in subject.workload if not subject.proxied(pod)]
    seen = f"{total - len(without)} of {total}" + (f", not {without[0]}" if without else "")
    return [Proof("a proxy in every pod", phase, not without and total > 0, f"{total} of {total}", seen)]


def _one_sided(subject: ProofContext, phase: str, _expect: Mapping[str, Any]) -> list[Proof]:
    proofs = []
    for part, name in (("app", "the application's"), ("load", "the generators'")):
        pods, bare = subject.pods.get(part, ()), part in subject.bare
        having = sum(map(subject.proxied, pods))
        wanted = 0 if bare else len(pods)
        proof = f"a proxy in {'none' if bare else 'each'} of {name} pods"
        proofs.append(Proof(proof, phase, having == wanted and bool(pods), f"{wanted} of {len(pods)}", str(having)))
    return proofs


def _refused(name: str, ask: Callable[[ProofContext, Mapping[str, Any]], probing.Answer]) -> Maker:
    def make(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
        answer = ask(subject, expect)
        return [Proof(name, phase, answer.refused, "refused", answer.detail)]

    return make


def _let_in(name: str, ask: Callable[[ProofContext, Mapping[str, Any]], probing.Answer]) -> Maker:
    def make(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
        answer = ask(subject, expect)
        return [Proof(name, phase, answer.status == 200, "let in", answer.detail)]

    return make


def _peer_identity(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    answer = _echo(subject)
    header = re.search(str(expect["header"]), answer.body)
    seen = header.group(0).strip() if header else f"{answer.detail}, no such header"
    return [Proof("the generator's identity seen by the app", phase, header is not None, "its SPIFFE name", seen[:300])]


def _no_peer_identity(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    answer = _echo(subject)
    header = re.search(str(expect.get("header", "(?mi)^X-Forwarded-Client-Cert:.*URI=")), answer.body)
    passed = answer.status == 200 and header is None
    seen = header.group(0).strip() if header else f"{answer.detail}, none"
    return [Proof("no identity between the proxies", phase, passed, "HTTP 200, none", seen[:300])]


def _codes(expect: Mapping[str, Any], name: str) -> tuple[int, ...]:
    return tuple(map(int, expect[name]))


def _jwt(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    assert subject.setup.tokens is not None
    cases = token_cases(subject.setup.tokens, _codes(expect, "missing"), _codes(expect, "bad"), audience=(401, 403))
    return [_status(subject, phase, "JWT", case) for case in cases]


def _opa(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    assert subject.setup.tokens is not None
    bad = _codes(expect, "bad")
    missing = (*_codes(expect, "missing"), *([401] if len(bad) > 1 else []))
    cases = token_cases(subject.setup.tokens, missing, bad, audience=(401, 403))
    return [_status(subject, phase, "OPA", case) for case in (*cases, forbidden_method(subject.setup.tokens))]


def _denied(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    path = str(expect["path"])
    case = Case("denied", subject.rendered.target.headers, _codes(expect, "denied"))
    return [_status(subject, phase, path, case, path)]


def _allowed(subject: ProofContext, phase: str, expect: Mapping[str, Any]) -> list[Proof]:
    path = str(expect["path"])
    return [_status(subject, phase, path, Case("allowed", subject.rendered.target.headers, (200,)), path)]


def _outside(subject: ProofContext, _expect: Mapping[str, Any]) -> probing.Answer:
    """The service as a stranger sees it; asked again while nobody is there, which proves nothing either way."""
    url = subject.rendered.direct + subject.setup.app.path

    def ask() -> probing.Answer:
        return probing.request(subject.cluster, subject.probe, url, subject.rendered.target.headers)

    return waiting.until(ask, _PATIENCE_S, 0.5, lambda answer: answer.status or answer.refused)


def _beyond(subject: ProofContext, expect: Mapping[str, Any]) -> probing.Answer:
    service, _, rest = str(expect["beyond"]).partition(":")
    host = f"{service}.{subject.setup.namespace}.svc.cluster.local"
    return probing.request(subject.cluster, subject.load, f"http://{host}:{rest}", subject.rendered.target.headers)


def _echo(subject: ProofContext) -> probing.Answer:
    url = subject.rendered.inside + subject.setup.app.headers_path
    return probing.request(subject.cluster, subject.load, url, subject.rendered.target.headers)


MAKERS: dict[str, Maker] = {
    "one-sided": _one_sided,
    "proxied": _proxied,
    "plaintext-refused": _refused("plaintext from outside the mesh refused", _outside),
    "plaintext-accepted": _let_in("plaintext from outside the mesh accepted", _outside),
    "peer-identity": _peer_identity,
    "no-peer-identity": _no_peer_identity,
    "jwt": _jwt,
    "opa": _opa,
    "denied": _denied,
    "allowed": _allowed,
    # A proxy that was not told of a service sends plain text to it, which the service's own proxy refuses.
    "scoped": _refused("a tier that is not called is unknown to the proxy", _beyond),
    "unscoped": _let_in("a tier that is not called is known to the proxy", _beyond),
}


def _status(subject: ProofContext, phase: str, what: str, case: Case, path: str = "") -> Proof:
    url = subject.rendered.inside + (path or subject.setup.app.path)
    answer = probing.request(subject.cluster, subject.load, url, case.headers, case.method)
    expected = "HTTP " + " or ".join(str(code) for code in dict.fromkeys(case.answers))
    return Proof(f"{what} {case.name}", phase, answer.status in case.answers, expected, answer.detail)


def policy_counters(subject: ProofContext) -> list[Counter]:
    """What shows that the policy servers of a treatment decided, read where they stand."""
    if subject.rendered.policy_counter is None:
        return []  # no policy server in this treatment
    url, pattern = subject.rendered.policy_counter
    mesh = subject.setup.mesh
    pods = "waypoint" if mesh is not None and mesh.waypoints else "app"
    return [Counter("decisions of the policy servers", pods, url, pattern)]


def _counter(
    subject: ProofContext, phase: str, requests: int, counter: Counter, whole: Counter | None = None
) -> list[Proof]:
    read = partial(_read, subject, counter)
    if phase == "before":
        subject.before[counter.name] = read()
        return []
    if whole is not None:
        return [_share(subject, phase, counter, whole)]
    load = subject.setup.load
    sent = requests * max(1, load.payload_bytes if load.protocol == "tcp" else 0)
    wanted = {"requests": float(sent), "some": 1.0, "none": 0.0}[counter.growth]
    value = probing.grown(read, subject.before.get(counter.name, 0.0), wanted)
    if counter.growth == "none":
        return [Proof(counter.name, phase, value == 0, "0", f"{value:g}")]
    return [Proof(counter.name, phase, value >= wanted > 0, f"at least {wanted:g}", f"{value:g}")]


def _read(subject: ProofContext, counter: Counter) -> float:
    addresses = [str(pod["status"].get("podIP", "")) for pod in subject.pods.get(counter.pods, ())]
    return probing.total(subject.cluster, subject.probe, addresses, counter.url, counter.pattern)


def _share(subject: ProofContext, phase: str, counter: Counter, whole: Counter) -> Proof:
    def judged() -> Proof:
        part, all_of_it = (int(_read(subject, c) - subject.before.get(c.name, 0.0)) for c in (counter, whole))
        return sampled.proof(counter.name, phase, part, all_of_it, counter.percent)

    return waiting.until(judged, _LOG_PATIENCE_S, 0.5, lambda proof: proof.passed)


def _lines(subject: ProofContext, phase: str, requests: int, lines: Lines) -> list[Proof]:
    if phase == "before":
        return []
    wanted = min(requests, _LOOKED_AT)

    def read() -> float:
        matching = 0
        for pod in subject.pods.get(lines.pods, ()):
            text = log_of(subject.cluster, pod, lines.container, tailLines=2 * _LOOKED_AT)
            matching += len(re.findall(lines.pattern, text))
        return matching

    count = int(probing.grown(read, 0, wanted, _LOG_PATIENCE_S))
    return [Proof(lines.name, phase, count >= wanted > 0, f"at least {wanted} lines", f"{count} lines")]
