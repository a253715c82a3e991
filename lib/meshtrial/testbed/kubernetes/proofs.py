"""Proofs of each treatment before and after the load: effects, checked from inside and outside the mesh.

A proof never reads the configuration that was meant to cause an effect: it sends the request that must be refused,
reads what the app saw, and counts what the proxies counted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed import proving
from meshtrial.testbed.kubernetes import meshversions, probing
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.manifests import containers
from meshtrial.testbed.kubernetes.meshdata import PROOFS, Counter, Lines, VersionProbe
from meshtrial.testbed.kubernetes.pods import PodRef, container_names, log_of
from meshtrial.testbed.kubernetes.workload import Rendered, Setup
from meshtrial.testbed.proving import Case, forbidden_method, token_cases

# Headers that the proxies of these meshes add to a request.
_PROXY_HEADERS = re.compile(r"(?mi)^(x-forwarded-client-cert|x-envoy-[\w-]+|l5d-[\w-]+|x-request-id|via): .*$")
_MOST_LINES = 500  # log lines that are read
_LOG_PATIENCE_S = 12.0  # Envoy writes its log when 64 KiB are full, or every 10 s
_PATIENCE_S = 15.0  # the probe's node may receive a new Service later than the generators' node


@dataclass
class ProofContext:
    """A running deployment, as its proofs see it."""

    cluster: Cluster
    rendered: Rendered
    pods: Mapping[str, Sequence[Json]]  # of app, load, waypoint and the components of agents and control plane
    load: PodRef
    probe: PodRef
    phase: str = "before"
    before: dict[str, float] = field(default_factory=dict)
    # Versions that the parts report, by probe (meshversions.reported_versions).
    reported: Mapping[str, tuple[VersionProbe, list[str]]] = field(default_factory=dict)

    @property
    def setup(self) -> Setup:
        """The treatment, load and application of the deployment."""
        return self.rendered.setup

    @property
    def bare(self) -> set[str]:
        """Pods that stay outside of the mesh, and so have no proxy that counts."""
        return {feature.bare for feature in self.setup.features}

    @property
    def workload(self) -> list[Json]:
        """Pods of the application and the generators."""
        return [*self.pods.get("app", ()), *self.pods.get("load", ())]

    def proxied(self, pod: Json) -> bool:
        """Return whether a pod has a proxy of the mesh."""
        return self.setup.mesh is not None and bool({*self.setup.mesh.proxy_containers} & {*container_names(pod)})

    def proof(self, name: str, passed: bool, expected: str, observed: str) -> Proof:
        """Return a proof of this phase."""
        return Proof(name, self.phase, passed, expected, observed[:300])

    def ask(self, path: str = "", case: Case | None = None) -> probing.Answer:
        """Return the application's answer to the generators' pod: to their own request, or to this case."""
        url = self.rendered.inside + (path or self.setup.app.path)
        headers, method = (case.headers, case.method) if case else (self.rendered.target.headers, "GET")
        return probing.request(self.cluster, self.load, url, headers, method)


Maker = Callable[[ProofContext, Mapping[str, Any]], list[Proof]]


def prove(context: ProofContext, phase: str, requests: int) -> tuple[Proof, ...]:
    """Return every proof of the treatment; one that could not be made has failed, with its reason."""
    context.phase = phase
    mesh, features = context.setup.mesh, context.setup.features
    todo: list[tuple[str, Callable[[], list[Proof]]]] = []
    if mesh is None:
        todo.append(("no proxy in the path", partial(_no_proxy, context)))
    else:
        todo += [(name, partial(MAKERS[name], context, expect)) for name, expect in applicable_proofs(context.setup)[0]]
        counters = {c.name: c for c in (*mesh.counters, *(c for f in features for c in f.counters))}
        if context.rendered.policy_counter is not None:
            pods = "waypoint" if mesh.waypoints else "app"
            decisions = Counter("decisions of the policy servers", pods, *context.rendered.policy_counter)
            counters[decisions.name] = decisions
        for name, counter in counters.items():
            if counter.pods not in context.bare:
                todo.append((name, partial(_counter, context, requests, counter, counters.get(counter.of))))
        if mesh.declared is not None:
            version = partial(meshversions.prove, mesh, context.pods, context.reported, phase)
            todo.append((f"version {mesh.declared.version}", version))
        lines = [line for feature in features for line in feature.logs if line.pods not in context.bare]
        todo += [(item.name, partial(_lines, context, requests, item)) for item in lines if phase != "before"]
    proofs: list[Proof] = []
    for name, work in todo:
        try:
            proofs += work()
        except TestbedError as error:
            proofs.append(context.proof(name, False, "an answer", str(error)))
    return tuple(proofs)


def applicable_proofs(setup: Setup) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
    """Return the named proofs of a treatment with their expectations, and those that this application lacks.

    A proof that needs an echo of the request's headers cannot be made on an application without one. Whether the others
    suffice is decided before the study (:func:`meshtrial.testbed.kubernetes.workload.render`).
    """
    mesh, app = setup.mesh, setup.app
    if mesh is None:
        return [], ()
    expected: dict[tuple[str, str], Mapping[str, Any]] = {}
    one_sided = any(feature.bare for feature in setup.features)
    for name in mesh.proofs:
        if not (one_sided and name == "proxied"):
            expected[name, str(mesh.expect)] = mesh.expect
    for feature in mesh.features.values():
        for name in feature.proofs if feature in setup.features else feature.absent_proofs:
            # Two features may have the same proof with the same expectation: it is made once.
            expected[name, str(feature.expect)] = feature.expect
    possible = [(name, expect) for (name, _), expect in expected.items() if app.gives(PROOFS[name])]
    return possible, tuple(dict.fromkeys(name for name, _ in expected if not app.gives(PROOFS[name])))


def _no_proxy(context: ProofContext) -> list[Proof]:
    planned = {str(c["name"]) for o in context.rendered.objects for c in containers(o)}
    there = [(pod["metadata"]["name"], name) for pod in context.workload for name in container_names(pod)]
    injected = [f"{pod}/{name}" for pod, name in there if name not in planned]
    proofs = [context.proof("no proxy container", not injected, "none", ", ".join(injected[:3]) or "none")]
    if context.setup.app.headers_path:
        answer = context.ask(context.setup.app.headers_path)
        seen = ", ".join(match.group(0).strip() for match in _PROXY_HEADERS.finditer(answer.body))
        passed = answer.status == 200 and not seen
        proofs.append(context.proof("no proxy header", passed, "HTTP 200, none", f"{answer.detail}, {seen or 'none'}"))
    return proofs


def _proxied(context: ProofContext, _expect: Mapping[str, Any]) -> list[Proof]:
    total = len(context.workload)
    without = [pod["metadata"]["name"] for pod in context.workload if not context.proxied(pod)]
    seen = f"{total - len(without)} of {total}" + (f", not {without[0]}" if without else "")
    return [context.proof("a proxy in every pod", not without and total > 0, f"{total} of {total}", seen)]


def _one_sided(context: ProofContext, _expect: Mapping[str, Any]) -> list[Proof]:
    proofs = []
    for part, name in (("app", "the application's"), ("load", "the generators'")):
        pods, bare = context.pods.get(part, ()), part in context.bare
        having = sum(map(context.proxied, pods))
        wanted = 0 if bare else len(pods)
        proof = f"a proxy in {'none' if bare else 'each'} of {name} pods"
        proofs.append(context.proof(proof, having == wanted and bool(pods), f"{wanted} of {len(pods)}", str(having)))
    return proofs


def _access(name: str, ask: Callable[[ProofContext, Mapping[str, Any]], probing.Answer], refused: bool) -> Maker:
    def make(context: ProofContext, expect: Mapping[str, Any]) -> list[Proof]:
        answer = ask(context, expect)
        passed = answer.refused if refused else answer.status == 200
        return [context.proof(name, passed, "refused" if refused else "let in", answer.detail)]

    return make


def _identity(name: str, present: bool) -> Maker:
    """Return the proof that the application sees the generator's identity in a header, or does not."""
    usual = {} if present else {"header": "(?mi)^X-Forwarded-Client-Cert:.*URI="}

    def make(context: ProofContext, expect: Mapping[str, Any]) -> list[Proof]:
        answer = context.ask(context.setup.app.headers_path)
        header = re.search(str({**usual, **expect}["header"]), answer.body)
        seen = header.group(0).strip() if header else f"{answer.detail}, {'no such header' if present else 'none'}"
        if present:
            return [context.proof(name, header is not None, "its SPIFFE name", seen)]
        return [context.proof(name, answer.status == 200 and header is None, "HTTP 200, none", seen)]

    return make


def _tokens(label: str, policy: bool) -> Maker:
    """Return the proofs that tokens are checked, by a policy server or the proxy itself."""

    def make(context: ProofContext, expect: Mapping[str, Any]) -> list[Proof]:
        tokens = context.setup.tokens
        missing, bad = (tuple(map(int, expect[name])) for name in ("missing", "bad"))
        if policy and len(bad) > 1:
            missing = (*missing, 401)
        cases = token_cases(tokens, missing, bad, audience=(401, 403))
        return [_status(context, label, case) for case in (*cases, *([forbidden_method(tokens)] if policy else []))]

    return make


def _on_path(name: str) -> Maker:
    """Return the proof that requests to the expected path are denied, or allowed."""

    def make(context: ProofContext, expect: Mapping[str, Any]) -> list[Proof]:
        path, answers = str(expect["path"]), tuple(map(int, expect["denied"])) if name == "denied" else (200,)
        return [_status(context, path, Case(name, context.rendered.target.headers, answers), path)]

    return make


def _status(context: ProofContext, label: str, case: Case, path: str = "") -> Proof:
    answer = context.ask(path, case)
    expected = "HTTP " + " or ".join(str(code) for code in dict.fromkeys(case.answers))
    return context.proof(f"{label} {case.name}", answer.status in case.answers, expected, answer.detail)


def _outside(context: ProofContext, _expect: Mapping[str, Any]) -> probing.Answer:
    """Return how a pod outside of the mesh is answered; without any answer, which proves nothing, ask again."""
    url = context.rendered.direct + context.setup.app.path

    def ask() -> probing.Answer:
        return probing.request(context.cluster, context.probe, url, context.rendered.target.headers)

    return waiting.until(ask, _PATIENCE_S, 0.5, lambda answer: answer.status or answer.refused)


def _beyond(context: ProofContext, expect: Mapping[str, Any]) -> probing.Answer:
    service, _, rest = str(expect["beyond"]).partition(":")
    host = f"{service}.{context.setup.namespace}.svc.cluster.local"
    return probing.request(context.cluster, context.load, f"http://{host}:{rest}", context.rendered.target.headers)


MAKERS: dict[str, Maker] = {
    "one-sided": _one_sided,
    "proxied": _proxied,
    "plaintext-refused": _access("plaintext from outside the mesh refused", _outside, refused=True),
    "plaintext-accepted": _access("plaintext from outside the mesh accepted", _outside, refused=False),
    "peer-identity": _identity("the generator's identity seen by the app", present=True),
    "no-peer-identity": _identity("no identity between the proxies", present=False),
    "jwt": _tokens("JWT", policy=False),
    "opa": _tokens("OPA", policy=True),
    "denied": _on_path("denied"),
    "allowed": _on_path("allowed"),
    # A proxy that does not know a service sends plain text to it, which the service's own proxy refuses.
    "scoped": _access("a tier that is not called is unknown to the proxy", _beyond, refused=True),
    "unscoped": _access("a tier that is not called is known to the proxy", _beyond, refused=False),
}


def _counter(context: ProofContext, requests: int, counter: Counter, whole: Counter | None) -> list[Proof]:
    if context.phase == "before":
        context.before[counter.name] = _read(context, counter)
        return []
    if whole is not None:
        return [_share(context, counter, whole)]
    load = context.setup.load
    sent = requests * max(1, load.payload_bytes if load.protocol == "tcp" else 0)
    expected = {"requests": float(sent), "some": 1.0, "none": 0.0}[counter.growth]
    value = probing.grown(partial(_read, context, counter), context.before.get(counter.name, 0.0), expected)
    if counter.growth == "none":
        return [context.proof(counter.name, value == 0, "0", f"{value:g}")]
    return [context.proof(counter.name, value >= expected > 0, f"at least {expected:g}", f"{value:g}")]


def _read(context: ProofContext, counter: Counter) -> float:
    addresses = [str(pod["status"].get("podIP", "")) for pod in context.pods.get(counter.pods, ())]
    return probing.total(context.cluster, context.probe, addresses, counter.url, counter.pattern)


def _share(context: ProofContext, counter: Counter, whole: Counter) -> Proof:
    def judged() -> Proof:
        part, total = (int(_read(context, c) - context.before.get(c.name, 0.0)) for c in (counter, whole))
        return proving.proof(counter.name, context.phase, part, total, counter.percent)

    return waiting.until(judged, _LOG_PATIENCE_S, 0.5, lambda proof: proof.passed)


def _lines(context: ProofContext, requests: int, lines: Lines) -> list[Proof]:
    expected = min(requests, _MOST_LINES)

    def read() -> float:
        matching = 0
        for pod in context.pods.get(lines.pods, ()):
            text = log_of(context.cluster, pod, lines.container, tailLines=2 * _MOST_LINES)
            matching += len(re.findall(lines.pattern, text))
        return matching

    count = int(probing.grown(read, 0, expected, _LOG_PATIENCE_S))
    return [context.proof(lines.name, count >= expected > 0, f"at least {expected} lines", f"{count} lines")]
