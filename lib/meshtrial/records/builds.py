"""Programs that were built for debugging, as their versions report: their cost is not that of a release.

Envoy's version ends in RELEASE or DEBUG; linkerd-proxy and ztunnel report the profile that Cargo built them with. A
debug build was once mistaken for a mesh's cost, four times too large (istio/istio#49829).
Limits: a program that reports nothing is not suspected, and a release with assertions left in reports RELEASE.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from meshtrial.records.schema import RunRecord

BUILT_AS = " is built as"  # behind a part's name, in the versions of a run
_ENVOY = re.compile(r"\d\S* ([A-Z]+) (?:Clean|Modified|Distribution) ")
_RELEASES = {"release", "symbols-release"}  # ztunnel's symbols-release is a release with symbols


def not_released(runs: Iterable[RunRecord]) -> dict[tuple[str, str], list[str]]:
    """Return treatments by a program and its build, where that is not a release; each treatment once."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs:
        for program, word in _build_types(run.versions):
            if word.lower() not in _RELEASES:
                found.setdefault((program, word), {})[run.treatment] = None
    return {key: list(treatments) for key, treatments in found.items()}


def _build_types(versions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in versions.items():
        if name.endswith(BUILT_AS):
            yield from ((name.removesuffix(BUILT_AS), word) for word in text.split(", "))
        elif (name == "envoy" or name.startswith("version ")) and (match := _ENVOY.match(text)):
            yield name, match[1]
