"""All contrasts of one response at one load: compared, corrected together, judged.

The family is the unit of inference. It is declared before the first run, so a treatment that turned out invalid still
counts in Holm's correction. The A/A twin checks the instrument and is not a member.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.margin import Margin
from meshtrial.stats.contrast import (
    Comparison,
    Design,
    Samples,
    block_differences,
    compare_paired,
    compare_unpaired,
)
from meshtrial.stats.diagnostics import all_dependent, dependent_blocks, places_differ
from meshtrial.stats.multiplicity import benjamini_hochberg, holm, step_down_max_t
from meshtrial.stats.ranktests import FloatArray, leave_one_out_p, smallest_p
from meshtrial.stats.verdict import NoiseFloor, Verdict, decide, noise_floor
from meshtrial.vocabulary import (
    BOTH,
    NO_TWIN,
    RATE_FAILURES,
    THE_BASELINE,
    Correction,
    Scale,
    Unit,
    VerdictLabel,
    Warning,
)

Role = Literal["primary", "exploratory", "a/a"]
Adjustment = Literal[Correction, "benjamini-hochberg", "none"]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """What is declared about a family of contrasts before its values are seen."""

    baseline: str  # the control treatment
    twin: str | None = None  # the baseline's A/A twin: analysed separately and never corrected
    contrasts: Sequence[Pair] | None = None  # the declared pairs; by default every treatment against the baseline
    design: Design = "paired"  # one value per block, in the same blocks for every treatment; or unpaired runs
    alpha: float = 0.05  # family-wise error rate
    margin: Margin | None = None  # equivalence margin of this response
    kind: str = "latency"  # of the response: `latency`, `resource` or another; chooses the words for the direction
    primary: bool = True  # whether the response is primary; others are exploratory and use Benjamini-Hochberg
    # For the tests for a difference of a primary, paired family. Its tests against the margin use Holm. So do unpaired
    # families, because they have no blocks whose signs could be flipped together.
    correction: Correction = "holm"
    scale: Scale = "ratio"  # the effect that carries the verdicts
    # Pairs in which one treatment lacks the response: compared by difference, whatever the scale of the others
    differences: Collection[Pair] = ()
    order_known: bool = False  # whether the caller knows the order of unpaired runs
    unit: Unit = "block"  # of a paired family: blocks, or sessions with the means of their blocks

    def pairs(self, names: Sequence[str]) -> list[Pair]:
        """Return the declared pairs; without any, every treatment but the twin against the baseline."""
        if self.contrasts is not None:
            return list(self.contrasts)
        return [(name, self.baseline) for name in names if name not in (self.baseline, self.twin)]

    @property
    def role(self) -> Role:
        """Whether verdicts of the declared pairs are primary or exploratory."""
        return "primary" if self.primary else "exploratory"

    @property
    def adjustment(self) -> Adjustment:
        """The correction of the tests for a difference."""
        if not self.primary:
            return "benjamini-hochberg"
        return self.correction if self.design == "paired" else "holm"

    def scale_of(self, pair: Pair) -> Scale:
        """Return the scale on which two treatments are compared."""
        return "difference" if pair in self.differences else self.scale

    def margin_of(self, pair: Pair) -> Margin | None:
        """Return the margin of a pair; None if it is relative and one of the two lacks the response."""
        if pair not in self.differences or self.margin is None or self.margin.floor:
            return self.margin
        return None

    def corrected(self, p: Sequence[float | None]) -> list[float | None]:
        """Return corrected p-values; a contrast without a p-value still counts, as one that never rejects."""
        correct = holm if self.primary else benjamini_hochberg
        adjusted = correct([1.0 if raw is None else raw for raw in p]).tolist()
        return [None if raw is None else value for raw, value in zip(p, adjusted, strict=True)]


@dataclass(frozen=True, slots=True)
class ContrastResult:
    """One judged contrast of a family."""

    treatment: str
    baseline: str
    role: Role
    # None if the treatment is invalid or saturated, or fewer than 2 complete blocks remain
    comparison: Comparison | None
    p_adjusted: float | None  # corrected by `adjustment`
    # Corrected by Holm, or by Benjamini and Hochberg for an exploratory response
    p_equivalence_adjusted: float | None
    p_material_adjusted: float | None
    adjustment: Adjustment  # none for the twin
    verdict: Verdict
    noise: NoiseFloor | None  # of this response and load, if a paired family has a twin
    warnings: tuple[Warning, ...]  # of the comparison and of the family


_PValues = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class _Sample:
    """The values of a family; if paired, over complete blocks or over sessions, with the session of each block."""

    family: Family
    values: Mapping[str, FloatArray]
    blocks: Sequence[Hashable] = ()  # labels of the values: blocks or sessions
    excluded: tuple[Hashable, ...] = ()
    sessions: Sequence[str] = ()
    geometric: Mapping[str, FloatArray] | None = None  # with sessions as the unit: the means whose ratios are taken

    @property
    def paired(self) -> bool:
        return self.family.design == "paired"

    @property
    def by_session(self) -> list[NDArray[np.bool_]]:
        """Mask of the blocks of each session; only blocks of one session are neighbours."""
        return [np.array([name == one for name in self.sessions]) for one in dict.fromkeys(self.sessions)]

    def of_sessions(self) -> _Sample:
        """Return the means of each session's blocks; infinite if a run of the session ranks worst.

        The mean of logarithms of ratios is the logarithm of a ratio of geometric means.
        """
        masks, names = self.by_session, tuple(dict.fromkeys(self.sessions))
        arithmetic = {name: np.array([v[mask].mean() for mask in masks]) for name, v in self.values.items()}
        with np.errstate(divide="ignore", invalid="ignore"):  # a value that is not positive has no ratio
            logs = {name: np.log(v) for name, v in self.values.items()}
        geometric = {name: np.exp([v[mask].mean() for mask in masks]) for name, v in logs.items()}
        return replace(self, values=arithmetic, geometric=geometric, blocks=names, sessions=[""] * len(names))

    def on(self, scale: Scale) -> Mapping[str, FloatArray]:
        """Return the values that a scale uses."""
        return self.geometric if scale == "ratio" and self.geometric is not None else self.values

    def samples(self, pair: Pair) -> Samples:
        """Return the values of a pair by the scale that uses them."""
        first, second = pair
        ratio, difference = self.on("ratio"), self.on("difference")
        return {"ratio": (ratio[first], ratio[second]), "difference": (difference[first], difference[second])}

    def compare(self, pair: Pair, m_family: int) -> Comparison | None:
        """Return one contrast, not corrected; None if a treatment is excluded or fewer than 2 blocks are complete."""
        if not set(pair) <= set(self.values) or (self.paired and len(self.blocks) < 2):
            return None
        family, on = self.family, self.samples(pair)
        asked: dict[str, Any] = {"alpha": family.alpha, "m_family": m_family}
        asked |= {"margin": family.margin_of(pair), "scale": family.scale_of(pair)}
        if not self.paired:
            return compare_unpaired(*on["difference"], order_known=family.order_known, **asked)
        asked |= {"jointly": family.correction == "max-t", "of_ratios": on["ratio"], "unit": family.unit}
        return compare_paired(*on["difference"], **asked)

    def corrected(self, pairs: Sequence[Pair], compared: Sequence[Comparison | None]) -> list[_PValues]:
        """Return the p-values of each contrast, each kind of test corrected over the family."""
        tests = list(zip(*map(_p_values, compared), strict=True))
        corrected = [self.family.corrected(p) for p in tests]
        if tests and self.family.adjustment == "max-t":
            corrected[:1] = [self._jointly(pairs, tests[0])]
        return list(zip(*corrected, strict=True))

    def _jointly(self, pairs: Sequence[Pair], p: Sequence[float | None]) -> list[float | None]:
        """Correct differences by max-T, never below a contrast's own p-value, which its interval inverts.

        A contrast that was not tested cannot be called, so it does not count.
        """
        tested = [pair for pair, raw in zip(pairs, p, strict=True) if raw is not None]
        if len(tested) < 2:
            return list(p)
        scales = [self.family.scale_of(pair) for pair in tested]
        pairs_on = zip(tested, scales, strict=True)
        samples = [block_differences(*self.samples(pair)[scale], scale) for pair, scale in pairs_on]
        adjusted = dict(zip(tested, step_down_max_t(*zip(*samples, strict=True)).tolist(), strict=True))
        return [None if raw is None else max(raw, adjusted[pair]) for pair, raw in zip(pairs, p, strict=True)]


def _complete_blocks(
    family: Family, values: Mapping[str, FloatArray], blocks: Sequence[Hashable] | None, sessions: Mapping[Any, str]
) -> _Sample:
    """Return the values over the blocks that are complete for every treatment, or over the sessions of such blocks."""
    if not values:
        return _Sample(family, {})
    whole = ~np.logical_or.reduce([np.isnan(v) for v in values.values()])
    labels = range(1, len(whole) + 1) if blocks is None else blocks
    kept, excluded = (tuple(label for label, ok in zip(labels, mask, strict=True) if ok) for mask in (whole, ~whole))
    kept_sessions = [sessions.get(label, "") for label in kept]
    sample = _Sample(family, {name: v[whole] for name, v in values.items()}, kept, excluded, kept_sessions)
    return sample.of_sessions() if family.unit == "session" else sample


def _p_values(c: Comparison | None) -> _PValues:
    """Return the p-values for a difference, for equivalence and for a material difference."""
    if c is None:
        return None, None, None
    against = c.against
    return c.effect.p, *((against.p_equivalence, against.p_material) if against else (None, None))


def _excluded_warnings(sample: _Sample) -> tuple[Warning, ...]:
    if not (excluded := sample.excluded):
        return ()
    of, names = len(sample.blocks) + len(excluded), ", ".join(map(str, excluded))
    text = f"{len(excluded)} of {of} blocks are excluded for all treatments ({names}): see which checks failed there"
    return (Warning("blocks-excluded", text),)


def _twin_warnings(sample: _Sample, twin: Comparison | None, noise: NoiseFloor | None) -> tuple[Warning, ...]:
    """Return what the A/A check means for every contrast."""
    family = sample.family
    warnings: list[Warning] = []
    if family.twin and twin is None:
        text = (
            f"the A/A twin {family.twin} has no values here, so the study's own noise is unknown: see which checks its "
            "runs failed, and read these verdicts without the A/A check"
        )
        warnings.append(Warning(NO_TWIN, text))
    if twin is None or noise is None or twin.provisional:
        return tuple(warnings)
    if twin.effect.p <= twin.alpha:
        text = (
            f"the baseline and its identical twin differ (p = {twin.effect.p:.3g}), which chance causes in "
            f"{twin.alpha:.0%} of studies: look for what else changes between runs, and run one new study before "
            "acting on small effects"
        )
        warnings.append(Warning("aa-differs", text))
    if noise.noise_exceeds_margin(twin.margin):
        against = "" if twin.margin is None else f", with a margin of {twin.margin:.3g}"
        text = (
            f"baseline and twin differ by {noise.floor:.3g} (p = {twin.effect.p:.2g}){against}: make the machine "
            "quieter or measure longer, and run one new study; only larger effects get a verdict"
        )
        warnings.append(Warning("noise-floor", text))
    return tuple(warnings)


def analyse_family(
    # Paired: one value per block, in the same order of blocks; nan for a missing run, infinite for a run that failed on
    # its own and ranks worst. A block with a nan is excluded for every treatment. Unpaired: one value per run; lengths
    # may differ.
    values: Mapping[str, ArrayLike],
    family: Family,
    *,
    blocks: Sequence[Hashable] | None = None,  # labels of the blocks
    # Treatments that are invalid or saturated as a whole. They get that verdict, do not exclude the blocks of others,
    # and still count in the family.
    stopped: Mapping[str, VerdictLabel] | None = None,
    # For every treatment, in which blocks the rate was not kept. A contrast is then `saturated` only if its two sides
    # differ in that, and otherwise `invalid`.
    rate_failures: Mapping[str, ArrayLike] | None = None,
    # The session of each block, if the study has several: stretches of time, or places. They are the unit if the
    # family's unit is the session. Otherwise only blocks of one session are neighbours, and effects that differ between
    # sessions are reported.
    sessions: Mapping[Any, str] | None = None,
    # Bucket widths of quantiles from histograms, as shares of the quantile. Intervals are widened by them.
    resolution: Mapping[str, float] | None = None,
) -> tuple[ContrastResult, ...]:
    """Compare, correct and judge all contrasts of one response at one load, in the family's order, the twin last."""
    pairs = family.pairs(list(values))
    stopped = stopped or {}
    kept = {name: np.asarray(v, dtype=np.float64) for name, v in values.items() if name not in stopped}
    sample = _Sample(family, kept)
    if sample.paired:
        sample = _complete_blocks(family, sample.values, blocks, sessions or {})
    m, aa = max(1, len(pairs)), (family.twin or "", family.baseline)
    twin, compared = sample.compare(aa, 1), [sample.compare(pair, m) for pair in pairs]
    noise = noise_floor(twin) if twin and sample.paired else None
    warnings = _excluded_warnings(sample), _twin_warnings(sample, twin, noise), _dependence(sample)
    failures = {name: np.asarray(failed, dtype=np.float64) for name, failed in (rate_failures or {}).items()}
    unproven: dict[Pair, Warning] = {}
    if failures and VerdictLabel.SATURATED in stopped.values():
        unproven = _unproven(family, pairs, failures, stopped) | _unproven(family, [aa], failures, stopped)
    context = _Context(sample, stopped, unproven, resolution or {}, noise, *warnings)
    rows = zip(pairs, compared, sample.corrected(pairs, compared), strict=True)
    results = [_judge(context, pair, family.role, c, p, family.adjustment) for pair, c, p in rows]
    if family.twin:
        results.append(_judge(context, aa, "a/a", twin, _p_values(twin), "none"))
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Context:
    """What the judgement of every contrast of a family needs in addition to its own p-values."""

    sample: _Sample
    stopped: Mapping[str, VerdictLabel]
    unproven: Mapping[Pair, Warning]  # pairs whose sides do not differ in how often they missed the rate
    resolution: Mapping[str, float]
    noise: NoiseFloor | None
    excluded: tuple[Warning, ...]
    twin_warnings: tuple[Warning, ...]
    dependent: tuple[Warning, ...]  # dependence between blocks that all treatments show together


def _dependence(sample: _Sample) -> tuple[Warning, ...]:
    scale = sample.family.scale
    # Values that are all zero have no logarithm and no slow states.
    varying = [v for v in sample.on(scale).values() if v.any()]
    return tuple(w for here in sample.by_session for w in all_dependent([v[here] for v in varying], scale))


def _judge(
    context: _Context, pair: Pair, role: Role, c: Comparison | None, p: _PValues, adjustment: Adjustment
) -> ContrastResult:
    """Judge one contrast from its corrected p-values."""
    sample, family = context.sample, context.sample.family
    scale = family.scale_of(pair)
    dependent, differing = context.dependent, tuple[Warning, ...]()
    # The twin's noise floor is known on its own scale only.
    same_scale = scale == family.scale_of((family.twin or "", family.baseline))
    floor, of_twin = (context.noise, context.twin_warnings) if same_scale else (None, ())
    shared = (*context.excluded, *of_twin)
    if c is not None and context.resolution:
        c = c.widened(*(context.resolution.get(name, 0.0) for name in pair))
    if c is not None and sample.paired:
        t, b = sample.samples(pair)[scale]
        of_contrast = (w for here in sample.by_session for w in dependent_blocks(t[here], b[here], scale=scale))
        dependent = (*of_contrast, *context.dependent)
        differing = places_differ(t, b, sample.sessions, scale=scale)
    stopped, side = _stopped(context.stopped, pair)
    if stopped is VerdictLabel.SATURATED and pair in context.unproven:
        stopped, shared = VerdictLabel.INVALID, (*shared, context.unproven[pair])
    verdict = decide(
        c,
        p_adjusted=p[0],
        p_equivalence_adjusted=p[1],
        p_material_adjusted=p[2],
        noise=floor,
        dependent=bool(dependent),
        kind=family.kind,
        stopped=stopped,
        stopped_side=side,
    )
    warnings = shared
    if c is not None:
        flips = influence(sample.samples(pair), c, verdict, p[0], p[1], sample.blocks) if sample.paired else ()
        warnings = (*c.warnings, *dependent, *differing, *flips, *shared)
    return ContrastResult(*pair, role, c, *p, adjustment, verdict, floor, warnings)


def _stopped(stopped: Mapping[str, VerdictLabel], pair: Pair) -> tuple[VerdictLabel | None, str]:
    """Return invalid if either treatment is, else saturated if either is; and which of the two it is."""
    labels = [stopped.get(name) for name in pair]
    for label in (VerdictLabel.INVALID, VerdictLabel.SATURATED):
        if label in labels:
            of_treatment, of_baseline = (one is label for one in labels)
            return label, "" if not of_baseline else BOTH if of_treatment else THE_BASELINE
    return None, ""


def _unproven(
    family: Family,
    pairs: Sequence[Pair],
    failures: Mapping[str, FloatArray],
    stopped: Mapping[str, VerdictLabel],
) -> dict[Pair, Warning]:
    """Return the pairs in which no saturated side missed the rate in significantly more blocks, with the counts.

    A failure is a value of 0 or 1, tested and corrected like every other difference. The signed-rank test is then the
    sign test of the blocks in which one side alone failed.
    """
    counted = replace(family, primary=True, scale="difference", differences=(), margin=None, unit="block")
    sample = _Sample(counted, failures, range(len(next(iter(failures.values())))))
    compared = [sample.compare(pair, len(pairs)) for pair in pairs]
    unproven = {}
    for pair, (p, *_) in zip(pairs, sample.corrected(pairs, compared), strict=True):
        if not set(pair) <= failures.keys():
            continue
        failed, of_baseline = (int(failures[name].sum()) for name in pair)
        more = pair[0] if failed > of_baseline else pair[1]
        if p is None or p > family.alpha or stopped.get(more) is not VerdictLabel.SATURATED:
            text = (
                f"it did not reach the requested rate in {failed} of {len(sample.blocks)} blocks, and its baseline in "
                f"{of_baseline}, which chance may explain: lower the rate, or plan more blocks"
            )
            unproven[pair] = Warning(RATE_FAILURES, text)
    return unproven


_NOT_TESTED = (VerdictLabel.INVALID, VerdictLabel.SATURATED, VerdictLabel.UNSTABLE, VerdictLabel.DEPENDENT)


def influence(
    on: Samples,
    comparison: Comparison,
    verdict: Verdict,
    p_adjusted: float | None,
    p_equivalence_adjusted: float | None,
    blocks: Sequence[Hashable],
) -> tuple[Warning, ...]:
    """Warn if the verdict would change without a single block or session.

    The family's correction is that of the full data. If n - 1 blocks cannot reach alpha with it, the uncorrected
    p-value is used, because a study at its floor is not fragile for that reason alone.
    """
    treatment, baseline = on[comparison.scale]
    kept = np.isfinite(treatment) | np.isfinite(baseline)  # a block in which both rank worst decides nothing
    on = {scale: (t[kept], b[kept]) for scale, (t, b) in on.items()}
    blocks = [block for block, is_kept in zip(blocks, kept, strict=True) if is_kept]
    c, n, label = comparison, len(blocks), verdict.label
    if c.provisional or p_adjusted is None or label in _NOT_TESTED or (c.coarse and not label.conclusive):
        return ()
    d, atol = block_differences(*on[c.scale], c.scale)
    one_sided = bool((d > 0).all() or (d < 0).all())
    if label.different and c.effect.p <= c.alpha and one_sided and smallest_p(n - 1) * c.m_floor <= c.alpha:
        return ()  # all blocks agree, and n - 1 of them suffice
    factor = _factor(c.effect.p, p_adjusted, smallest_p(n - 1), c)
    differs = [p * factor <= c.alpha for p in leave_one_out_p(d, "two-sided", atol)]
    equal = [False] * n
    if c.against is not None and p_equivalence_adjusted is not None:
        x, tied = block_differences(*on[c.against.scale], c.against.scale)
        factor = _factor(c.against.p_equivalence, p_equivalence_adjusted, smallest_p(n - 1, "greater"), c)
        below = leave_one_out_p(x - c.against.half, "less", tied)
        above = leave_one_out_p(x + c.against.half, "greater", tied)
        equal = [max(both) * factor <= c.alpha for both in zip(below, above, strict=True)]
    if label.different:
        flips, becomes = [not x for x in differs], "not be a difference"
    elif label is VerdictLabel.EQUIVALENT:
        flips, becomes = [x or not y for x, y in zip(differs, equal, strict=True)], f"not be {VerdictLabel.EQUIVALENT}"
    else:
        flips, becomes = [x or y for x, y in zip(differs, equal, strict=True)], "be conclusive"
    deciding = [str(block) for block, flip in zip(blocks, flips, strict=True) if flip]
    if not deciding:
        return ()
    names = ", ".join(deciding[:5])
    if len(deciding) > 1:
        which = f"any one of {len(deciding)} {c.counted} ({names}{', ...' * (len(deciding) > 5)})"
    else:
        which = names if c.unit == "session" else f"block {names}"
    text = f"without {which} the verdict would {becomes}: read its logs and checks, keep it, and plan a larger study"
    return (Warning("influential-block", text),)


def _factor(p: float, adjusted: float, smallest: float, c: Comparison) -> float:
    factor = min(adjusted / p, float(c.m_family)) if p > 0 else float(c.m_family)
    return factor if smallest * factor <= c.alpha else 1.0
