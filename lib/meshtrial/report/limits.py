"""What limits a study's conclusion and no check can mend: what was measured, where, when, and of which builds."""

from __future__ import annotations

from collections.abc import Iterable

from meshtrial.design.responses import MARKED
from meshtrial.records import builds
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.checks import Check, number_of, with_warnings

_LOCAL = (
    "The proxied treatments are reference data planes built from plain Envoy on one machine. They show what an "
    "architecture or a feature costs there; they are not a measurement of any mesh product.",
    "Everything runs on one machine over loopback: there is no network between client and server, and load generator, "
    "proxies and app share the same cores. Added milliseconds hold for such a machine; on a cluster the same share of "
    "a longer path is another number.",
)
_CLUSTER = ("The verdicts hold for this cluster, these versions, this placement and this load.",)
_ALWAYS = (
    "An interval speaks of this session: how far another day, or a machine in another state, lies from it, only "
    "another study tells (meshtrial compare).",
    "Inconclusive says that this study cannot tell. Equivalent says that the effect lies within the margin, which is "
    "a choice of the plan and not a law of nature.",
    "Exploratory rows were not the question of this study: treat them as hints.",
)


def limits(data: StudyData) -> Check:
    """All of it, in a line and in words; a debug build is the one limit that a reader must not miss."""
    study, local = data.plan.study, data.plan.study.backend == "local"
    debug, own, absent = builds.not_released(data.runs), _own_builds(data.runs), _not_reported(data)
    parts = [f"{word} build of {program}" for program, word in debug]
    parts += ["reference data planes, not a mesh", "one machine"] if local else ["this cluster", "this load"]
    if own:
        parts.append(f"own builds of {wording.listing(own) if len(own) < 3 else number_of(len(own), 'treatment')}")
    parts += ["one session", *(f"{name} not reported" for name in absent)]
    details = [
        f"{program} is no release, by its own word ({word}), in {wording.listing(treatments)}: such a build may cost "
        "several times what a release does. Measure a release; these figures say nothing of one."
        for (program, word), treatments in debug.items()
    ]
    details += _LOCAL if local else _CLUSTER
    details += [f"Built from source, and no releases: {wording.listing(own)}."] if own else []
    rates = wording.listing([load.label for load in study.loads])
    details += [
        f"The verdicts hold for the loads that were measured ({rates}); latency at another rate is another question.",
        *absent.values(),
        *_percentiles(data),
        *_ALWAYS,
    ]
    check = Check("limits", "problem" if debug else "fine", "", "", "; ".join(parts), details=tuple(details))
    return with_warnings(check, frames.contrasts(data, primary=True, family="").rows)


def _own_builds(runs: Iterable[RunRecord]) -> list[str]:
    """Meshes that were built from source, by their names."""
    told = {name: text for run in runs for name, text in run.versions.items() if name.startswith("mesh ")}
    return sorted(name.removeprefix("mesh ") for name, text in told.items() if "own build" in text)


def _not_reported(data: StudyData) -> dict[str, str]:
    """Primary responses that were not recorded, and at which loads."""
    found: dict[str, dict[str, None]] = {}
    contrasts = frames.contrasts(data, primary=True)
    for row in contrasts.rows:
        if not row.twin and not contrasts.reported(row):
            found.setdefault(wording.short_label(row.response), {})[row.load] = None
    return {name: f"{name} is not reported at {wording.listing(list(loads))}." for name, loads in found.items()}


def _percentiles(data: StudyData) -> list[str]:
    """Percentiles that no run gives, and what it takes to get them."""
    recorded = set(data.table.filter(data.table["included"])["response"].to_list())
    absent = [marked.label for marked in MARKED if f"latency_{marked.key}_s" not in recorded]
    if not absent or not recorded:
        return []
    return [
        f"Not reported: {wording.listing(absent)}. A percentile is given only where "
        f"{data.plan.study.gates.sample_floor:g} requests of every run lie beyond it; run longer or faster to get it."
    ]
