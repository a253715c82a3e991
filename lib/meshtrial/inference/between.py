"""Recorded studies of one question, from different days, versions or clusters: where they agree, and how days differ.

Opinion: a study is one day, and days are a sample like runs. Within a study a treatment and its baseline share their
blocks. Two studies share nothing, so a difference between them may come from the version or only from the day, and no
test can separate the two. A difference between studies is tested against the noise inside them and reported with that
reservation. The effect over all studies has an interval that includes the spread between days: random effects by Paule
and Mandel, with Student's t over the studies. It is never narrower than the noise inside the studies alone would give,
because a few days that lie close together do not prove that days do. From three studies on,
a prediction interval says where the next study's estimate will be. A proxy adds work to a request; if the baseline
moves between sessions, its ratio moves too, so differences are compared as well.

In a series of studies, one response at one load is a family of series: all contrasts and the baseline's own level. If
nothing changes, at most a share alpha of families has a mark where its level changed. A change that the A/A twin or the
baseline's level shares comes from the machine and not from a treatment.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial import stats
from meshtrial.design.plan import Plan
from meshtrial.design.responses import REGISTRY, applies
from meshtrial.design.study import Contrast
from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.inference import read_study
from meshtrial.inference.values import FloatArray, LoadBlocks, block_effects
from meshtrial.lazy import pl
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.records.store import PLAN, StudyStore, write_json
from meshtrial.vocabulary import VerdictLabel

LEAST_BLOCKS = 2
WORDS = {
    VerdictLabel.EQUIVALENT: "agree within the margin",
    VerdictLabel.INCONCLUSIVE: "open",
    VerdictLabel.DEPENDENT: "open",
}
# Settings in which two plans of one question may differ.
_MAY_DIFFER = ("seed", "study_dir", "measure", "kubeconfig", "context", "namespace", "cluster_file")


@dataclass(frozen=True)
class Effect:
    """The estimate of one study for a contrast, or for a baseline's own level."""

    study: int  # index in the list of studies
    values: FloatArray  # one per block: ratios, differences, or levels
    # Mean and standard error of the logarithms, or of the differences
    mean: float
    error: float


@dataclass(frozen=True)
class OverDays:
    """An effect over several studies."""

    # A ratio, or a difference in the response's unit
    estimate: float
    low: float
    high: float
    # Standard deviation between the studies, of logarithms for a ratio; 0 if their own noise explains the differences
    between_sd: float
    # Its interval (Viechtbauer, Statistics in Medicine 26, 2007, section 2.2: the Q-profile); None for two studies,
    # which determine no spread
    sd_low: float | None
    sd_high: float | None
    confidence: float
    # Prediction interval for the estimate of the next study (`stats.next_session`); None with fewer than three
    next_low: float | None = None
    next_high: float | None = None


@dataclass(frozen=True)
class Between:
    """One contrast, or a baseline's level, in all studies that have it."""

    # Without a baseline: the level of the treatment itself
    load: str
    response: str
    treatment: str
    baseline: str
    scale: stats.Scale
    effects: tuple[Effect, ...]
    against_first: tuple[stats.ContrastResult, ...]  # each further study against the first that has it
    # If the scale is the ratio, this and the other `added_` fields have the same for treatment minus baseline
    added: tuple[stats.ContrastResult, ...]
    over_days: OverDays | None
    added_over_days: OverDays | None = None
    added_effects: tuple[Effect, ...] = ()

    def word(self, result: stats.ContrastResult) -> str:
        """Return the result of the comparison with the first study in words."""
        return WORDS.get(result.verdict.label, "differ" if result.comparison is not None else "not compared")


def compare(studies: Sequence[StudyData]) -> tuple[Between, ...]:
    """Compare every primary contrast, and the baseline's level, that two of the studies have at one load.

    Raise UsageError if they ask different questions, or have no load and no contrast in common.
    """
    if len(studies) < 2:
        raise UsageError("one study is not enough: name two or more that ask the same question")
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
    """Return the studies with the newest one's study, treatments, loads and backend, oldest first; and the others."""
    ordered = sorted(studies, key=lambda data: data.began_unix_s or 0.0)
    if not ordered:
        return [], []
    asked = _question(ordered[-1].plan)
    same = [data for data in ordered if _question(data.plan) == asked]
    return same, [data for data in ordered if _question(data.plan) != asked]


def _question(plan: Plan) -> tuple[Any, ...]:
    study = plan.study
    names = tuple(treatment.name for treatment in study.treatments)
    return study.name, study.backend, study.app, names, tuple(load.label for load in study.loads)


def earlier(data: StudyData, most: int = 10) -> list[StudyData]:
    """Return the newest studies of the same question that lie beside this one and began before it, oldest first.

    Folders that cannot be read are left out.
    """
    found: list[StudyData] = []
    for path in sorted(data.path.parent.glob(f"*/{PLAN}"), reverse=True):
        with contextlib.suppress(MeshtrialError, OSError):
            store = StudyStore.open(path.parent)
            if store.plan.sha256 != data.plan.sha256 and _question(store.plan) == _question(data.plan):
                other = read_study(store)
                found += [other] if (other.began_unix_s or math.inf) < (data.began_unix_s or 0.0) else []
        if len(found) == most:
            break
    return found[::-1]


def estimate_in(data: StudyData, row: VerdictRow) -> float | None:
    """Return a study's mean effect of a contrast, on the scale of a row's verdict; None if the study lacks it."""
    values = _values(data, row.load, row.response, row.treatment, row.baseline)
    scale: stats.Scale = "difference" if row.by_difference else "ratio"
    effect = effect_of(0, *values, scale) if values else None
    return None if effect is None else float(np.exp(effect.mean)) if scale == "ratio" else effect.mean


def differences(studies: Sequence[StudyData]) -> list[str]:
    """Return settings and versions that differ between the studies, one line each."""
    lines = []
    asked = [data.plan.study.parameters for data in studies]
    for name in sorted(set().union(*asked)):
        values = [str(one.get(name, "")) for one in asked]
        if name not in _MAY_DIFFER and len(set(values)) > 1:
            lines.append(f"{name}: {' / '.join(value or '(empty)' for value in values)}")
    versions = [_versions(data) for data in studies]
    for name in sorted(set().union(*versions)):
        recorded = [one.get(name, "(none)") for one in versions]
        if len(set(recorded)) > 1:
            lines.append(f"version of {name}: {' / '.join(recorded)}")
    return lines


def _versions(data: StudyData) -> dict[str, str]:
    versions: dict[str, set[str]] = {}
    for run in data.runs:
        for name, version in run.versions.items():
            versions.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(several)) for name, several in versions.items()}


def _asked(studies: Sequence[StudyData]) -> Iterable[tuple[str, str, str, str]]:
    """Yield load, response, treatment and baseline of everything that any study declares, each once."""
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
    no_ratio = any(base is not None and not (base > 0).all() for _, base in taken.values())
    scale: stats.Scale = "difference" if no_ratio or REGISTRY[response].counted else "ratio"
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
    """Compare studies by their values: the treatment's, and those of its baseline.

    Return None if fewer than two studies have any.
    """
    *_, response, _, baseline = of

    def on(scale: stats.Scale) -> tuple[Effect, ...]:
        effects = (effect_of(i, own, base, scale) for i, (own, base) in taken.items())
        return tuple(effect for effect in effects if effect is not None)

    effects = on(scale)
    if len(effects) < 2:
        return None
    results, over = _against_first(effects, scale, margin, response, alpha), over_days(effects, scale, alpha)
    if scale == "difference" or not baseline:
        return Between(*of, scale, effects, results, (), over)
    # The margin in the unit of the first study's baseline: a share of the difference would be another margin.
    _, base = taken[effects[0].study]
    size = None if margin is None or base is None else Margin(0.0, margin.difference(float(np.median(base))))
    differences = on("difference")
    added = _against_first(differences, "difference", size, response, alpha)
    return Between(*of, scale, effects, results, added, over, over_days(differences, "difference", alpha), differences)


def _values(
    data: StudyData, load: str, response: str, treatment: str, baseline: str
) -> tuple[FloatArray, FloatArray | None] | None:
    """Return the values of treatment and baseline over the study's included blocks; None with fewer than two."""
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
    """Return one study's effect from its values and the baseline's; None if a ratio is not positive."""
    effects = block_effects(own, base, scale)
    if effects is None:
        return None
    values = np.exp(effects) if scale == "ratio" else effects
    return Effect(study, values, float(effects.mean()), float(effects.std(ddof=1) / np.sqrt(len(effects))))


def _against_first(
    effects: Sequence[Effect], scale: stats.Scale, margin: Margin | None, response: str, alpha: float
) -> tuple[stats.ContrastResult, ...]:
    first, *others = (str(effect.study) for effect in effects)
    # A floor is in the response's unit, so ratios use the relative part only.
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
    """Combine the studies by random effects; None if one of them has no noise to be weighted by."""
    # statsmodels takes a second to load.
    from statsmodels.stats.meta_analysis import combine_effects

    errors = np.array([effect.error for effect in effects])
    if not (errors > 0).all():
        return None
    means = np.array([effect.mean for effect in effects])
    if len(set(means.tolist())) < 2:
        return None  # the same study twice
    combined = combine_effects(means, errors**2, method_re="iterated", use_t=True, alpha=alpha)
    # The last of its four intervals: random effects, scaled by the observed differences. The first: the noise inside
    # the studies alone.
    inside, *_, across = combined.conf_int(alpha=alpha, use_t=True)
    values = [float(combined.mean_effect_re), float(min(inside[0], across[0])), float(max(inside[1], across[1]))]
    values += [] if (ends := stats.next_session(means, alpha)) is None else ends.tolist()
    estimate, low, high, *prediction = (float(np.exp(value)) for value in values) if scale == "ratio" else values
    spread = float(np.sqrt(max(0.0, combined.tau2)))
    return OverDays(estimate, low, high, spread, *_spread_interval(means, errors, alpha), 1 - alpha, *prediction)


def _spread_interval(means: FloatArray, errors: FloatArray, alpha: float) -> tuple[float | None, float | None]:
    """Return the standard deviations between the studies at which their scatter is neither too large nor too small."""
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
        # The scatter decreases to 0 as the variance grows, so doubling ends.
        above = float(np.ptp(means) ** 2)
        while scatter(above) > wanted:
            above *= 2
        return float(np.sqrt(brentq(lambda variance: scatter(variance) - wanted, 0.0, above)))

    return at(1 - alpha / 2), at(alpha / 2)


def write(path: Path, studies: Sequence[StudyData], compared: Sequence[Between]) -> None:
    """Write everything as JSON: studies, effects by study, comparisons with the first, and the effect over days."""
    listed = [{"path": data.path.name, "plan": data.plan.sha256, "start_unix_s": data.began_unix_s} for data in studies]
    rows = [
        {
            **{name: getattr(one, name) for name in ("load", "response", "treatment", "baseline", "scale")},
            "effects": [
                {"study": e.study, "mean": e.mean, "error": e.error, "blocks": len(e.values)} for e in one.effects
            ],
            "against_first": [_plain(one, result) for result in one.against_first],
            "added_against_first": [_plain(one, result) for result in one.added],
            "over_days": one.over_days and asdict(one.over_days),
            "added_over_days": one.added_over_days and asdict(one.added_over_days),
        }
        for one in compared
    ]
    write_json(path, {"schema": "meshtrial.between/1", "studies": listed, "contrasts": rows})


def _plain(one: Between, result: stats.ContrastResult) -> dict[str, Any]:
    effect = result.comparison and result.comparison.effect
    return {
        "study": int(result.treatment),
        "says": one.word(result),
        "estimate": effect and effect.estimate,
        "p": effect and effect.p,
        "p_adjusted": result.p_adjusted,
    }


TIME, ATTRIBUTES = "time", ("study", "plan")


def levels(compared: Sequence[Between], alpha: float = 0.05) -> list[tuple[stats.LevelChange, ...]]:
    """Return the changes of level of each contrast; an index is a place in its `effects`, in the order of time.

    Levels are means of `Effect.mean`, so they are logarithms for a ratio.
    """

    families: dict[tuple[str, str], list[int]] = {}
    for i, one in enumerate(compared):
        families.setdefault((one.load, one.response), []).append(i)
    found: dict[int, tuple[stats.LevelChange, ...]] = {}
    for places in families.values():
        series = [[effect.mean for effect in compared[i].effects] for i in places]
        found |= dict(zip(places, stats.level_changes(series, alpha), strict=True))
    return [found[i] for i in range(len(compared))]


def frame(studies: Sequence[StudyData], compared: Sequence[Between]) -> pl.DataFrame:
    """Return one row per study, in the order given, and one column per contrast, response, load and scale.

    Columns are named ``latency_p50_s sidecar against none at 500rps-10c, ratio``. Differences and values are in SI base
    units. A study without a contrast has an empty cell.
    """
    began = [datetime.datetime.fromtimestamp(data.began_unix_s or 0.0, datetime.UTC) for data in studies]
    columns: dict[str, Any] = {
        TIME: [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in began],
        "study": [data.path.name for data in studies],
        "plan": [data.plan.sha256 for data in studies],
    }
    for name, scale, effects in _series(compared):
        by_study = {one.study: float(np.exp(one.mean)) if scale == "ratio" else one.mean for one in effects}
        columns[name] = [by_study.get(i) for i in range(len(studies))]
    return pl.DataFrame(columns)


def _series(compared: Sequence[Between]) -> Iterator[tuple[str, str, Sequence[Effect]]]:
    for one in compared:
        of = f"{one.treatment} against {one.baseline}" if one.baseline else one.treatment
        name = f"{one.response} {of} at {one.load}"
        if not one.baseline:
            # Values of a baseline are averaged as logarithms, too.
            yield f"{name}, value", one.scale, one.effects
            continue
        yield f"{name}, {one.scale}", one.scale, one.effects
        if one.added_effects:
            yield f"{name}, difference", "difference", one.added_effects


def otava_tests(name: str, table: Path, series: pl.DataFrame) -> dict[str, Any]:
    """Return the configuration with which Apache Otava reads the table of `frame` from a file.

    It lists the columns that every study has, because Otava reads no empty cell.
    """
    metrics = {
        column: {"column": column, "direction": -1, "scale": 1}
        for column in series.columns
        if column not in (TIME, *ATTRIBUTES) and not series[column].null_count()
    }
    test = {"type": "csv", "file": str(table), "time_column": TIME, "attributes": [*ATTRIBUTES], "metrics": metrics}
    return {"tests": {name: test}}
