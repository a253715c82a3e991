"""Why do sessions on one machine differ? A randomised experiment over many short local sessions, and its tables:

PYTHONPATH=docs:lib .venv/bin/python -P -m benchmarks.session_causes FOLDER --next [--sessions 32] [--seed N]
PYTHONPATH=docs:lib .venv/bin/python -P -m benchmarks.session_causes FOLDER

The first form makes the session that is due, or continues the one that was interrupted; it exits with 3 when all are
made. A session is a study of its own of 45 s.

What is done before each session is drawn once, in rounds of four, and kept in FOLDER: nothing, memory compacted and
caches dropped, cores kept awake, or both. The second form prints how far the sessions of each kind spread, and how
closely the recorded states of the machine go with a session's effect. Run nothing else during a session.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.table import markdown
from numpy.typing import NDArray
from scipy import stats as distributions

from meshtrial import stats
from meshtrial.design.responses import REGISTRY
from meshtrial.inference import read_study
from meshtrial.inference.values import LoadBlocks, included_blocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import StudyStore
from meshtrial.run.trial import Trial, complete
from meshtrial.testbed.local import host

STUDY, BASELINE, TREATMENT = "ambient_vs_no_mesh", "none", "sidecar+mtls"
GIVEN = {"treatments": f"{BASELINE},{TREATMENT}", "blocks": 4, "duration_s": 2.4, "slices": 2}
FEWEST_BLOCKS = 3
DONE_CODE = 3
RESAMPLES = 9999
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Intervention:
    """What is done before a session."""

    name: str
    settles: bool
    keeps_awake: bool


INTERVENTIONS = {
    one.name: one
    for one in (
        Intervention("nothing", settles=False, keeps_awake=False),
        Intervention("settled", settles=True, keeps_awake=False),
        Intervention("awake", settles=False, keeps_awake=True),
        Intervention("settled, awake", settles=True, keeps_awake=True),
    )
}


@dataclass(frozen=True)
class Outcome:
    """An effect of the treatment in a session."""

    name: str
    response: str
    differences: Callable[[Values, Values], Values]  # of treatment and baseline, by block
    is_ratio: bool

    def relative(self, effects: Values) -> Values:
        """Return effects on a scale whose differences are shares of the effect: logarithms, or shares of the mean."""
        return effects if self.is_ratio else effects / effects.mean()


def _log_ratio(treated: Values, base: Values) -> Values:
    return np.log(treated / base)


OUTCOMES = (
    Outcome("CPU ratio", "path_cpu_s_per_request", _log_ratio, is_ratio=True),
    Outcome("CPU added", "path_cpu_s_per_request", np.subtract, is_ratio=False),
    Outcome("p50 ratio", "latency_p50_s", _log_ratio, is_ratio=True),
    Outcome("p50 added", "latency_p50_s", np.subtract, is_ratio=False),
)
STATES = (
    *("wakeup_s", "spin_s", "memory_latency_s", "loopback_s", "free_huge_pages", "idle_before"),
    *("machine_stolen", "foreign_load"),
)


def main() -> int:
    """Make a session or print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session_causes", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the sessions are recorded")
    parser.add_argument("--next", action="store_true", help="make the session that is due")
    parser.add_argument("--sessions", type=int, default=32, help="a multiple of 4 (default 32)")
    parser.add_argument("--seed", type=int, help="of the order of interventions; drawn if left out")
    asked = parser.parse_args()
    if asked.sessions < len(INTERVENTIONS) or asked.sessions % len(INTERVENTIONS):
        parser.error(f"--sessions {asked.sessions}: must be a multiple of {len(INTERVENTIONS)}")
    folder = asked.folder.resolve()
    if asked.next:
        return make_next(folder, drawn(folder, asked.sessions, asked.seed))
    for line in tables(folder):
        print(line)
    return 0


def drawn(folder: Path, sessions: int, seed: int | None) -> list[Intervention]:
    """Return the intervention of each session; they are drawn once and kept in the folder."""
    path = folder / "experiment.json"
    if not path.exists():
        seed = random.SystemRandom().randrange(2**31) if seed is None else seed
        generator = random.Random(seed)
        rounds = [generator.sample(sorted(INTERVENTIONS), 4) for _ in range(sessions // 4)]
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"seed": seed, "interventions": list(itertools.chain(*rounds))}, indent=1))
    return [INTERVENTIONS[name] for name in json.loads(path.read_text())["interventions"]]


def make_next(folder: Path, interventions: list[Intervention]) -> int:
    """Make the first session that is not complete; return the exit code."""
    for number, intervention in enumerate(interventions, start=1):
        place = session_folder(folder, number)
        store = recorded(place)
        if store is not None and complete(store):
            if is_usable(store):
                continue
            print(f"session {number}: other programs disturbed it, so it is made again", file=sys.stderr)
            store = None
        done = host.settle() if intervention.settles else ()
        if intervention.settles and len(done) < 2:
            raise SystemExit("caches and memory cannot be settled here: run as root")
        os.environ["MESHTRIAL_DATA"] = str(place)
        given: dict[str, Any] = {"study_dir": str(store.path)} if store is not None else {**GIVEN, "seed": number}
        if intervention.keeps_awake:
            given["keep_awake"] = True
        print(f"session {number} of {len(interventions)}: {intervention.name}", file=sys.stderr)
        Trial(STUDY, given).run(lambda line: print(line, file=sys.stderr))
        return 0
    return DONE_CODE


def session_folder(folder: Path, number: int) -> Path:
    """Return the folder of one session's study and of earlier attempts at it, which were disturbed."""
    return folder / f"session-{number:03}"


def recorded(place: Path) -> StudyStore | None:
    """Return the session's newest study, if there is one."""
    found = sorted(place.glob(f"{STUDY}/*/plan.json"))
    return StudyStore.open(found[-1].parent) if found else None


def is_usable(store: StudyStore) -> bool:
    """Return whether a complete session has both treatments and enough blocks that passed their checks."""
    (included,) = read_study(store).inclusions.values()
    return not included.excluded and len(included.blocks) >= FEWEST_BLOCKS


@dataclass(frozen=True)
class Session:
    """What one session showed."""

    intervention: Intervention
    effects: Mapping[str, float]  # by outcome
    errors: Mapping[str, float]  # standard error of each effect, from its blocks
    states: Mapping[str, float]  # median over runs, by state


def sessions_in(folder: Path) -> list[Session]:
    """Read all complete sessions, in order."""
    found = []
    for number, intervention in enumerate(drawn(folder, len(INTERVENTIONS), None), start=1):
        store = recorded(session_folder(folder, number))
        if store is not None and complete(store) and is_usable(store):
            found.append(session_of(read_study(store), intervention, number))
    return found


def session_of(data: StudyData, intervention: Intervention, number: int) -> Session:
    """Return the effects and states of a session."""
    (load,) = data.plan.study.loads
    blocks = included_blocks(data, load.label)
    effects, errors = {}, {}
    for outcome in OUTCOMES:
        names = (TREATMENT, BASELINE)
        treated, base = blocks.complete(names, outcome.response).values(names, outcome.response).values()
        differences = outcome.differences(treated, base)
        effects[outcome.name] = float(differences.mean()) if len(differences) > 1 else math.nan
        errors[outcome.name] = (
            float(differences.std(ddof=1) / math.sqrt(len(differences))) if len(differences) > 1 else math.nan
        )
    states = {"order": float(number)} | {label_of(name): median_state(blocks, name) for name in STATES}
    for name in dict.fromkeys(outcome.response for outcome in OUTCOMES):
        base = blocks.values([BASELINE], name)[BASELINE]
        states[f"{label_of(name)}, of {BASELINE}"] = float(np.median(base)) * REGISTRY[name].scale
    return Session(intervention, effects, errors, states)


def label_of(response: str) -> str:
    """Return a response's label with its unit."""
    return f"{REGISTRY[response].label} ({REGISTRY[response].unit})"


def median_state(blocks: LoadBlocks, response: str) -> float:
    """Return the median over all runs in the unit for readers; NaN where it was not recorded."""
    values = blocks.runs.filter(pl.col("response") == response)["value"].to_numpy()
    return float(np.median(values)) * REGISTRY[response].scale if len(values) else math.nan


def tables(folder: Path) -> Iterator[str]:
    """Yield the lines of both tables."""
    sessions = sessions_in(folder)
    yield f"{len(sessions)} sessions of {len(drawn(folder, len(INTERVENTIONS), None))}"
    kinds = [one for one in INTERVENTIONS.values() if sum(s.intervention == one for s in sessions) > 2]
    yield from ("", "Mean effect; spread between sessions [95 %]; spread that the blocks alone explain", "")
    yield markdown(["before the session", "sessions", *(outcome.name for outcome in OUTCOMES)])
    yield markdown(["---"] * (2 + len(OUTCOMES)))
    for kind in kinds:
        chosen = [session for session in sessions if session.intervention == kind]
        yield markdown([kind.name, str(len(chosen)), *(spread_text(chosen, outcome) for outcome in OUTCOMES)])
    yield from ("", "Spread with against spread without [95 %], and the p-value of a permutation", "")
    yield markdown(["intervention", *(outcome.name for outcome in OUTCOMES)])
    yield markdown(["---"] * (1 + len(OUTCOMES)))
    for name, applies in FACTORS.items():
        yield markdown([name, *(comparison_text(sessions, outcome, applies) for outcome in OUTCOMES)])
    yield from ("", "Rank correlation of a session's state with its effect [95 %], within interventions", "")
    yield markdown(["state", "median (range)", *(outcome.name for outcome in OUTCOMES)])
    yield markdown(["---"] * (2 + len(OUTCOMES)))
    for label in sessions[0].states if sessions else ():
        values = np.array([session.states[label] for session in sessions])
        known = values[np.isfinite(values)]
        shown = f"{np.median(known):.3g} ({known.min():.3g} to {known.max():.3g})" if len(known) else "not recorded"
        yield markdown([label, shown, *(correlation_text(sessions, label, outcome) for outcome in OUTCOMES)])


FACTORS: dict[str, Callable[[Intervention], bool]] = {
    "settled": lambda one: one.settles,
    "awake": lambda one: one.keeps_awake,
}


def effects_of(sessions: list[Session], outcome: Outcome) -> Values:
    """Return the sessions' effects; NaN where a session has none."""
    return np.array([session.effects[outcome.name] for session in sessions])


def spread_text(sessions: list[Session], outcome: Outcome) -> str:
    """Return mean, standard deviation with its chi-square interval, and the part that blocks explain, as text."""
    effects = effects_of(sessions, outcome)
    errors = np.array([session.errors[outcome.name] for session in sessions])[np.isfinite(effects)]
    effects = effects[np.isfinite(effects)]
    if len(effects) < 3:
        return ""
    freedom, spread = len(effects) - 1, outcome.relative(effects).std(ddof=1)
    low, high = (spread * math.sqrt(freedom / q) for q in distributions.chi2.ppf([0.975, 0.025], freedom))
    by_blocks = math.sqrt(float(np.mean(errors**2))) / (1.0 if outcome.is_ratio else effects.mean())
    mean = f"{math.exp(effects.mean()):.2f}" if outcome.is_ratio else f"{1e6 * effects.mean():.0f} µs"
    return f"{mean}; {spread:.1%} [{low:.1%}, {high:.1%}]; {by_blocks:.1%}"


def deviations(sessions: list[Session], outcome: Outcome) -> Values:
    """Return each session's effect less the mean of its intervention, as a share of the effect."""
    effects, result = effects_of(sessions, outcome), np.full(len(sessions), np.nan)
    for kind in INTERVENTIONS.values():
        chosen = np.array([session.intervention == kind for session in sessions]) & np.isfinite(effects)
        if chosen.sum() > 2:
            relative = outcome.relative(effects[chosen])
            # Scaled so that a small group's deviations are as wide as those about its true mean.
            result[chosen] = (relative - relative.mean()) * math.sqrt(chosen.sum() / (chosen.sum() - 1))
    return result


def comparison_text(sessions: list[Session], outcome: Outcome, applies: Callable[[Intervention], bool]) -> str:
    """Return the ratio of two standard deviations with its F interval, and a permutation p-value, as text."""
    about_mean = deviations(sessions, outcome)
    is_with = np.array([applies(session.intervention) for session in sessions], dtype=bool)
    treated, others = (about_mean[chosen & np.isfinite(about_mean)] for chosen in (is_with, ~is_with))
    if min(len(treated), len(others)) < 4:
        return ""

    def log_ratio(first: Values, second: Values, axis: int = -1) -> Values:
        return np.log((first**2).mean(axis=axis) / (second**2).mean(axis=axis)) / 2

    tested = distributions.permutation_test(
        (treated, others), log_ratio, vectorized=True, n_resamples=RESAMPLES, rng=np.random.default_rng(0)
    )
    ratio, freedom = math.exp(float(tested.statistic)), (len(treated) - 2, len(others) - 2)  # two means in each
    low, high = (ratio / math.sqrt(q) for q in distributions.f.ppf([0.975, 0.025], *freedom))
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}], p {tested.pvalue:.3f}"


def correlation_text(sessions: list[Session], label: str, outcome: Outcome) -> str:
    """Return Spearman's correlation with the interval of Bonett & Wright (2000) as text, within interventions."""
    values, about_mean = np.array([session.states[label] for session in sessions]), deviations(sessions, outcome)
    for kind in INTERVENTIONS.values():
        chosen = np.array([session.intervention == kind for session in sessions])
        if np.isfinite(values[chosen]).any():
            values[chosen] -= np.nanmean(values[chosen])
    known = np.isfinite(values) & np.isfinite(about_mean)
    if known.sum() < 8 or np.ptp(values[known]) == 0:
        return ""
    rho, _ = stats.diagnostics.spearman(values[known], about_mean[known])
    half = 1.96 * math.sqrt((1 + rho**2 / 2) / (known.sum() - 3 - len(INTERVENTIONS) + 1))
    low, high = (math.tanh(math.atanh(max(-0.999, min(0.999, rho))) + sign * half) for sign in (-1, 1))
    return f"{rho:+.2f} [{low:+.2f}, {high:+.2f}]"


if __name__ == "__main__":
    sys.exit(main())
