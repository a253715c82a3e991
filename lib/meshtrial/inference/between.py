"""Recorded studies of one question, from other days, versions or clusters: what agrees, and what the day was worth.

Opinion: a study is one day, and days are a sample like runs. Within a study a treatment and its baseline share their
blocks; two studies share nothing, so what differs between them may be the version or just the day, and no test can tell
which. So a difference between studies is tested against the noise inside them, and said to be of the day as much as of
anything else; and an effect over all of them gets an interval in which the spread between days counts (random effects
by Paule and Mandel, interval by Student's t over the studies), and which is never narrower than what the noise inside
the studies alone would give: that a few days lie close together is no proof that days do. A proxy adds work to a
request, so where the baseline moves from session to session its ratio does too: what is added is compared beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial import stats
from meshtrial.design.responses import REGISTRY, applies
from meshtrial.design.study import Contrast
from meshtrial.errors import UsageError
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_json
from meshtrial.vocabulary import VerdictLabel

LEAST_BLOCKS = 2
WORDS = {
    VerdictLabel.EQUIVALENT: "agree within the margin",
    VerdictLabel.INCONCLUSIVE: "open",
    VerdictLabel.DEPENDENT: "open",
}
# What two plans of one question may differ in without being another question.
_OF_ITS_OWN = ("seed", "study_dir", "run_missing", "kubeconfig", "context", "namespace", "cluster_file")


@dataclass(frozen=True)
class Effect:
    """What one study says of a contrast, or of a baseline's own level."""

    study: int  # its place in the list of studies
    values: FloatArray  # one a block: ratios, differences, or levels
    # Of their logarithms, or of the differences; standard error of the mean
    mean: float
    error: float


@dataclass(frozen=True)
class OverDays:
    """An effect over several studies."""

    # A ratio, or a difference in the response's unit
    estimate: float
    low: float
    high: float
    # Standard deviation between the studies, of logarithms where it is a ratio; 0 where the studies differ by no more
    # than their own noise explains
    between_sd: float
    # Its interval (Viechtbauer, Statistics in Medicine 26, 2007, section 2.2: the Q-profile); None of two studies, from
    # which no spread can be told
    sd_low: float | None
    sd_high: float | None
    confidence: float


@dataclass(frozen=True)
class Between:
    """One contrast, or a baseline's level, in all studies that have it."""

    # An empty baseline: the level of the treatment itself
    load: str
    response: str
    treatment: str
    baseline: str
    scale: stats.Scale  # `ratio` or `difference`
    effects: tuple[Effect, ...]
    against_first: tuple[stats.ContrastResult, ...]  # each further study against the first that has it
    added: tuple[stats.ContrastResult, ...]  # of a ratio the same of the amounts, treatment minus baseline
    over_days: OverDays | None

    def word(self, result: stats.ContrastResult) -> str:
        """What the comparison with the first study comes to."""
        return WORDS.get(result.verdict.label, "differ" if result.comparison is not None else "not compared")


def compare(studies: Sequence[StudyData]) -> tuple[Between, ...]:
    """Every primary contrast, and the baseline's level, that two of the studies have at one load.

    UsageError where they ask different questions, or have no load and no contrast in common.
    """
    if len(studies) < 2:
        raise UsageError("one study: name two or more of the same question")
    names = {data.plan.study.name for data in studies}
    if len(names) > 1:
        raise UsageError(f"studies of {' and '.join(sorted(names))}: they ask different questions")
    compared = [one for asked in _asked(studies) if (one := _between(studies, *asked)) is not None]
    if not compared:
        loads = [", ".join(load.label for load in data.plan.study.loads) for data in studies]
        raise UsageError(
            f"no contrast is in two of the studies at the same load; their loads are {' and '.join(loads)}"
        )
    return tuple(compared)


def of_one_question(studies: Sequence[StudyData]) -> tuple[list[StudyData], list[StudyData]]:
    """Those that ask what the newest asks (study, treatments, loads, backend), oldest first; and the others."""

    def question(data: StudyData) -> tuple[Any, ...]:
        study = data.plan.study
        names = tuple(treatment.name for treatment in study.treatments)
        return study.name, study.backend, study.app, names, tuple(load.label for load in study.loads)

    ordered = sorted(studies, key=lambda data: data.began_unix_s or 0.0)
    if not ordered:
        return [], []
    asked = question(ordered[-1])
    same = [data for data in ordered if question(data) == asked]
    return same, [data for data in ordered if question(data) != asked]


def differences(studies: Sequence[StudyData]) -> list[str]:
    """What was asked differently, and what versions took part, study by study; empty where all is the same."""
    lines = []
    asked = [data.plan.study.parameters for data in studies]
    for name in sorted(set().union(*asked)):
        values = [str(one.get(name, "")) for one in asked]
        if name not in _OF_ITS_OWN and len(set(values)) > 1:
            lines.append(f"{name}: {' / '.join(value or '(empty)' for value in values)}")
    versions = [_versions(data) for data in studies]
    for name in sorted(set().union(*versions)):
        told = [one.get(name, "(none)") for one in versions]
        if len(set(told)) > 1:
            lines.append(f"version of {name}: {' / '.join(told)}")
    return lines


def _versions(data: StudyData) -> dict[str, str]:
    versions: dict[str, set[str]] = {}
    for run in data.runs:
        for name, version in run.versions.items():
            versions.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(several)) for name, several in versions.items()}


def _asked(studies: Sequence[StudyData]) -> Iterable[tuple[str, str, str, str]]:
    """Load, response, treatment and baseline of everything that any study declares, each once."""
    seen: dict[tuple[str, str, str, str], None] = {}
    for data in studies:
        study = data.plan.study
        for load in study.loads:
            for response in study.primary:
                if applies(response, load):
                    seen[load.label, response, study.baseline.name, ""] = None
                    pairs = [*study.all_contrasts()]
                    if study.twin is not None:
                        pairs.append(Contrast(study.twin.name, study.baseline.name))
                    seen |= dict.fromkeys((load.label, response, pair.treatment, pair.baseline) for pair in pairs)
    return seen


def _between(studies: Sequence[StudyData], load: str, response: str, treatment: str, baseline: str) -> Between | None:
    taken = {
        i: values for i, data in enumerate(studies) if (values := _values(data, load, response, treatment, baseline))
    }
    difference = any(base is not None and not (base > 0).all() for _, base in taken.values())
    scale: stats.Scale = "difference" if difference or REGISTRY[response].counted else "ratio"
    study = studies[0].plan.study
    of = (load, response, treatment, baseline)
    return of_values(taken, study.margins.get(response), of=of, scale=scale, alpha=study.alpha)


def of_values(
    taken: Mapping[int, tuple[FloatArray, FloatArray | None]],
    margin: Margin | None,
    *,
    of: tuple[str, str, str, str] = ("", "latency_p50_s", "treatment", "baseline"),
    scale: stats.Scale = "ratio",
    alpha: float = 0.05,
) -> Between | None:
    """What is between studies of which these are the values, the treatment's and those of what it is compared with.

    None where fewer than two have any.
    """
    load, response, treatment, baseline = of
    effects = _effects(taken, scale)
    if len(effects) < 2:
        return None
    results = _against_first(effects, scale, margin, response, alpha)
    added: tuple[stats.ContrastResult, ...] = ()
    if scale == "ratio" and baseline:
        # Within what the margin is of the first study's baseline: a margin relative to what is added is another one.
        _, base = taken[effects[0].study]
        size = None if margin is None or base is None else Margin(0.0, margin.difference(float(np.median(base))))
        added = _against_first(_effects(taken, "difference"), "difference", size, response, alpha)
    over = over_days(effects, scale, alpha)
    return Between(load, response, treatment, baseline, scale, tuple(effects), results, added, over)


def _effects(taken: Mapping[int, tuple[FloatArray, FloatArray | None]], scale: stats.Scale) -> list[Effect]:
    effects = (effect_of(i, own, base, scale) for i, (own, base) in taken.items())
    return [effect for effect in effects if effect is not None]


def _values(
    data: StudyData, load: str, response: str, treatment: str, baseline: str
) -> tuple[FloatArray, FloatArray | None] | None:
    """Values of the treatment and of what it is compared with, over the study's included blocks; None without two."""
    study = data.plan.study
    names = {one.name for one in study.treatments}
    if load not in {one.label for one in study.loads} or not {treatment, baseline or treatment} <= names:
        return None
    kept = data.inclusions[load]
    if {treatment, baseline} & set(kept.excluded):
        return None
    wanted = [treatment, *([baseline] if baseline else [])]
    runs = LoadBlocks.of(data.table, load, kept.blocks).complete(wanted, response)
    if len(runs.blocks) < LEAST_BLOCKS:
        return None
    values = runs.values(wanted, response)
    return values[treatment], values.get(baseline)


def effect_of(study: int, own: FloatArray, base: FloatArray | None, scale: stats.Scale) -> Effect | None:
    """One study's effect from its values and those of what it is compared with; None where a ratio is not positive."""
    if scale == "difference":
        values = own - base if base is not None else own
        shown = values
    else:
        values = own / base if base is not None else own
        if not (values > 0).all():
            return None
        shown = np.log(values)
    return Effect(study, values, float(shown.mean()), float(shown.std(ddof=1) / np.sqrt(len(shown))))


def _against_first(
    effects: Sequence[Effect], scale: stats.Scale, margin: Margin | None, response: str, alpha: float
) -> tuple[stats.ContrastResult, ...]:
    first, *others = (str(effect.study) for effect in effects)
    # Of ratios only the relative part means something: a floor is in the response's unit.
    if scale == "ratio":
        margin = Margin(margin.relative) if margin is not None and margin.relative else None
    elif margin is not None and not margin.floor:
        margin = None
    family = stats.Family(
        first,
        contrasts=[(name, first) for name in others],
        design="unpaired",
        alpha=alpha,
        margin=margin,
        kind=REGISTRY[response].kind,
        primary=False,
        scale=scale,
    )
    values: Mapping[str, Any] = {str(effect.study): effect.values for effect in effects}
    return stats.analyse_family(values, family)


def over_days(effects: Sequence[Effect], scale: stats.Scale, alpha: float) -> OverDays | None:
    """Random effects over the studies; None where one of them has no noise of its own to be weighed by."""
    # statsmodels takes a second to load
    from statsmodels.stats.meta_analysis import combine_effects

    errors = np.array([effect.error for effect in effects])
    if not (errors > 0).all():
        return None
    means = np.array([effect.mean for effect in effects])
    if len(set(means.tolist())) < 2:
        return None  # the same study twice
    combined = combine_effects(means, errors**2, method_re="iterated", use_t=True, alpha=alpha)
    # Of its four intervals the last: random effects, scaled by how much the studies really differ. The first: by the
    # noise inside them alone.
    inside, *_, across = combined.conf_int(alpha=alpha, use_t=True)
    values = [float(combined.mean_effect_re), float(min(inside[0], across[0])), float(max(inside[1], across[1]))]
    estimate, low, high = (float(np.exp(value)) for value in values) if scale == "ratio" else values
    spread = float(np.sqrt(max(0.0, combined.tau2)))
    return OverDays(estimate, low, high, spread, *_spread_interval(means, errors, alpha), 1 - alpha)


def _spread_interval(means: FloatArray, errors: FloatArray, alpha: float) -> tuple[float | None, float | None]:
    """Standard deviations between the studies under which their scatter is neither too large nor too small."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    if len(means) < 3:
        return None, None

    def scatter(variance: float) -> float:
        weights = 1 / (errors**2 + variance)
        return float(weights @ (means - weights @ means / weights.sum()) ** 2)

    def at(quantile: float) -> float:
        wanted = float(chi2.ppf(quantile, len(means) - 1))
        if scatter(0.0) <= wanted:
            return 0.0
        # The scatter falls to nothing as the variance grows: some power of two is beyond it.
        above = float(np.ptp(means) ** 2)
        while scatter(above) > wanted:
            above *= 2
        return float(np.sqrt(brentq(lambda variance: scatter(variance) - wanted, 0.0, above)))

    return at(1 - alpha / 2), at(alpha / 2)


def write(path: Path, studies: Sequence[StudyData], compared: Sequence[Between]) -> None:
    """Everything as JSON: the studies, effects by study, comparisons with the first, the effect over the days."""
    listed = [{"path": data.path.name, "plan": data.plan.sha256, "start_unix_s": data.began_unix_s} for data in studies]
    rows = []
    for one in compared:
        effects = [{"study": e.study, "mean": e.mean, "error": e.error, "blocks": len(e.values)} for e in one.effects]
        rows.append(
            {
                **{name: getattr(one, name) for name in ("load", "response", "treatment", "baseline", "scale")},
                "effects": effects,
                "against_first": [_plain(one, result) for result in one.against_first],
                "added_against_first": [_plain(one, result) for result in one.added],
                "over_days": None if one.over_days is None else asdict(one.over_days),
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema": "meshtrial.between/1", "studies": listed, "contrasts": rows})


def _plain(one: Between, result: stats.ContrastResult) -> dict[str, Any]:
    return {
        "study": int(result.treatment),
        "says": one.word(result),
        "estimate": None if result.comparison is None else result.comparison.effect.estimate,
        "p": None if result.comparison is None else result.comparison.effect.p,
        "p_adjusted": result.p_adjusted,
    }
