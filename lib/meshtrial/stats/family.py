"""All contrasts of one response at one load: compared, corrected together, judged.

The family is the unit of inference. It is declared before the first run, so a treatment that turned out invalid still
counts in Holm's correction; the A/A twin is the study's own instrument check and stands outside.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.errors import UsageError
from meshtrial.margin import Margin
from meshtrial.stats.comparison import Comparison, Design, Scale, Warning
from meshtrial.stats.contrast import block_differences, compare_paired, compare_unpaired
from meshtrial.stats.diagnostics import all_dependent, dependent_blocks, places_differ
from meshtrial.stats.influence import influence
from meshtrial.stats.multiplicity import benjamini_hochberg, holm, step_down_max_t
from meshtrial.stats.noise import NoiseFloor, noise_floor
from meshtrial.stats.ranktests import FloatArray
from meshtrial.stats.verdict import Verdict, decide
from meshtrial.vocabulary import NO_TWIN, Correction, VerdictLabel

Role = Literal["primary", "exploratory", "a/a"]
Adjustment = Literal[Correction, "benjamini-hochberg", "none"]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """What is declared of a family of contrasts before its values are seen."""

    baseline: str  # the control treatment
    twin: str | None = None  # the baseline's A/A twin: analysed by itself, never corrected, never in the family
    contrasts: Sequence[Pair] | None = None  # the declared pairs; by default every treatment against the baseline
    design: Design = "paired"  # one value a block, in the same blocks for every treatment; or runs that are not paired
    alpha: float = 0.05  # family-wise error rate
    margin: Margin | None = None  # equivalence margin of this response
    kind: str = "latency"  # of the response: `latency`, `resource` or another; chooses the words for the direction
    primary: bool = True  # of a declared primary response; any other is exploratory, Benjamini-Hochberg
    # Of a primary family's tests for a difference. Its tests against the margin are corrected by Holm, and so is all
    # that is not paired: no flip of a block's sign is one in several contrasts there.
    correction: Correction = "holm"
    scale: Scale = "ratio"  # the effect that carries the verdicts
    # Pairs of which one lacks what is measured: compared by difference whatever the others are
    differences: Collection[Pair] = ()
    order_known: bool = False  # of runs that are not paired: whether their order is known, and judged elsewhere

    def pairs(self, names: Sequence[str]) -> list[Pair]:
        """The declared pairs, which are checked, or every treatment but the twin against the baseline."""
        for name in [self.baseline, *([self.twin] if self.twin else [])]:
            if name not in names:
                raise UsageError(f"no treatment {name!r}; there are {', '.join(sorted(names))}")
        if self.contrasts is None:
            return [(name, self.baseline) for name in names if name not in (self.baseline, self.twin)]
        pairs = list(self.contrasts)
        for a, b in pairs:
            unknown = sorted({a, b} - set(names))
            if unknown:
                known = ", ".join(sorted(names))
                raise UsageError(f"contrast {a} - {b}: no treatment {unknown[0]!r}; there are {known}")
            if a == b or self.twin in (a, b):
                raise UsageError(
                    f"contrast {a} - {b}: neither a treatment against itself nor the A/A twin belongs to a family"
                )
        if len({frozenset(pair) for pair in pairs}) < len(pairs):
            raise UsageError("a contrast is declared twice")
        return pairs

    @property
    def role(self) -> Role:
        """What the verdicts of the declared pairs count for."""
        return "primary" if self.primary else "exploratory"

    @property
    def adjustment(self) -> Adjustment:
        """How the tests for a difference are corrected."""
        if not self.primary:
            return "benjamini-hochberg"
        return self.correction if self.design == "paired" else "holm"

    def scale_of(self, pair: Pair) -> Scale:
        """On which scale two treatments are compared."""
        return "difference" if pair in self.differences else self.scale

    def margin_of(self, pair: Pair) -> Margin | None:
        """What a pair is tested against: a margin relative to what one of them lacks means nothing without a floor."""
        if pair not in self.differences or self.margin is None or self.margin.floor:
            return self.margin
        return None

    def corrected(self, p: Sequence[float | None]) -> list[float | None]:
        """p-values corrected one by one; contrasts that gave none still count, as ones that never reject."""
        correct = holm if self.primary else benjamini_hochberg
        adjusted = correct([1.0 if value is None else value for value in p]).tolist()
        return [None if value is None else corrected for value, corrected in zip(p, adjusted, strict=True)]


@dataclass(frozen=True, slots=True)
class ContrastResult:
    """One contrast of a family, judged."""

    # The pair
    treatment: str
    baseline: str
    role: Role  # what the verdict counts for
    # None where the treatment is invalid or saturated, or fewer than 2 complete blocks are left
    comparison: Comparison | None
    p_adjusted: float | None  # corrected by `adjustment`
    # Each corrected by Holm, of an exploratory response by Benjamini and Hochberg
    p_equivalence_adjusted: float | None
    p_material_adjusted: float | None
    adjustment: Adjustment  # none for the twin
    verdict: Verdict  # what may be said
    noise: NoiseFloor | None  # noise floor of this response and load, where a paired family has a twin
    warnings: tuple[Warning, ...]  # of the comparison and of the family


_PValues = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class _Sample:
    """The values that enter a family; where they are paired, over complete blocks, and where these were run."""

    family: Family
    values: Mapping[str, FloatArray]
    blocks: Sequence[Hashable] = ()
    excluded: tuple[Hashable, ...] = ()
    places: Sequence[str] = ()

    @property
    def paired(self) -> bool:
        return self.family.design == "paired"

    @property
    def by_place(self) -> list[NDArray[np.bool_]]:
        """Of each place, which blocks were run there: only those of one place are neighbours."""
        return [np.array([name == place for name in self.places]) for place in dict.fromkeys(self.places)]

    def compare(self, pair: Pair, m_family: int) -> Comparison | None:
        """One contrast by itself; None where a treatment is left out or too few blocks are complete."""
        if not set(pair) <= set(self.values) or (self.paired and len(self.blocks) < 2):
            return None
        family, (treatment, baseline) = self.family, (self.values[name] for name in pair)
        asked = {"alpha": family.alpha, "margin": family.margin_of(pair), "scale": family.scale_of(pair)}
        if not self.paired:
            known = family.order_known
            return compare_unpaired(treatment, baseline, m_family=m_family, order_known=known, **asked)  # type: ignore[arg-type]
        # A step-up procedure leaves the p-values of contrasts as they are where all of them are as small.
        jointly = family.correction == "max-t"
        return compare_paired(treatment, baseline, m_family=m_family, jointly=jointly, **asked)  # type: ignore[arg-type]

    def corrected(self, pairs: Sequence[Pair], compared: Sequence[Comparison | None]) -> list[_PValues]:
        """The p-values of each contrast, each kind of test corrected over the family."""
        tests = list(zip(*map(_p_values, compared), strict=True))
        corrected = [self.family.corrected(p) for p in tests]
        if tests and self.family.adjustment == "max-t":
            corrected[:1] = [self._jointly(pairs, tests[0])]
        return list(zip(*corrected, strict=True))

    def _jointly(self, pairs: Sequence[Pair], p: Sequence[float | None]) -> list[float | None]:
        """Differences corrected by max-T; never below a contrast's own p, from which its interval is inverted.

        What was not tested can be called nothing, so it costs the others nothing.
        """
        tested = [pair for pair, own in zip(pairs, p, strict=True) if own is not None]
        if len(tested) < 2:
            return list(p)
        values, scale_of = self.values, self.family.scale_of
        taken = [block_differences(values[pair[0]], values[pair[1]], scale_of(pair)) for pair in tested]
        adjusted = dict(zip(tested, step_down_max_t(*zip(*taken, strict=True)).tolist(), strict=True))
        return [None if own is None else max(own, adjusted[pair]) for pair, own in zip(pairs, p, strict=True)]


def _complete_blocks(
    family: Family, values: Mapping[str, FloatArray], blocks: Sequence[Hashable] | None, places: Mapping[Any, str]
) -> _Sample:
    """The values over the blocks that are complete for every treatment."""
    if not values:
        return _Sample(family, {})
    shapes = {name: v.shape for name, v in values.items()}
    if len(set(shapes.values())) > 1 or any(len(s) != 1 for s in shapes.values()):
        raise UsageError(f"every treatment needs one value a block (nan where it has none), got shapes {shapes}")
    n = next(iter(shapes.values()))[0]
    labels = list(range(1, n + 1)) if blocks is None else list(blocks)
    if len(labels) != n or len(set(labels)) != n:
        raise UsageError(
            f"{n} values a treatment need {n} different block labels, got {len(labels)}; average slices first"
        )
    if any(bool(np.isneginf(v).any()) for v in values.values()):
        raise UsageError("a value is minus infinite; mark a run without a value by nan")
    whole = ~np.logical_or.reduce([np.isnan(v) for v in values.values()])
    kept, gone = (tuple(label for label, ok in zip(labels, mask, strict=True) if ok) for mask in (whole, ~whole))
    where = [places.get(label, "") for label in kept]
    return _Sample(family, {name: v[whole] for name, v in values.items()}, kept, gone, where)


def _p_values(c: Comparison | None) -> _PValues:
    """Of the tests for a difference, for equivalence, and for a material difference."""
    if c is None:
        return None, None, None
    against = c.against
    return c.effect.p, *((against.p_equivalence, against.p_material) if against else (None, None))


def _excluded_warnings(sample: _Sample) -> tuple[Warning, ...]:
    gone, n = sample.excluded, len(sample.blocks)
    if not gone:
        return ()
    names = ", ".join(str(g) for g in gone)
    text = f"{len(gone)} of {n + len(gone)} blocks are excluded for all treatments ({names}): see their gates"
    return (Warning("blocks-excluded", text),)


def _twin_warnings(sample: _Sample, twin: Comparison | None, noise: NoiseFloor | None) -> tuple[Warning, ...]:
    """What the A/A check says of every contrast."""
    family = sample.family
    warnings: list[Warning] = []
    if family.twin and twin is None:
        text = (
            f"the A/A twin {family.twin} has no values here, so nothing shows how large the study's own noise is: "
            "see its gates, and read these verdicts without that check"
        )
        warnings.append(Warning(NO_TWIN, text))
    if twin is None or noise is None or twin.provisional:
        return tuple(warnings)
    if twin.effect.p <= twin.alpha:
        text = (
            f"the baseline and its identical twin differ (p = {twin.effect.p:.3g}), as chance alone does in "
            f"{twin.alpha:.0%} of studies: look for what else changes between runs, and repeat before acting on "
            "small effects"
        )
        warnings.append(Warning("aa-differs", text))
    if noise.noise_exceeds_margin(twin.margin):
        against = "" if twin.margin is None else f", beside a margin of {twin.margin:.3g}"
        text = (
            f"baseline and twin differ by {noise.floor:.3g} (p = {twin.effect.p:.2g}){against}: quieten the machine or "
            "measure longer, and repeat; only effects beyond that size are called"
        )
        warnings.append(Warning("noise-floor", text))
    return tuple(warnings)


def analyse_family(
    # Paired: one value a block, in the same order of blocks; nan where a run has none, infinite where its own failure
    # ranks worst. A block with a nan is excluded for every treatment. Unpaired: one value a run; treatments may differ
    # in length.
    values: Mapping[str, ArrayLike],
    family: Family,  # what was declared
    *,
    blocks: Sequence[Hashable] | None = None,  # labels of the blocks
    # Treatments whose gates or proofs failed as a whole (invalid), or that did not keep up with the load (saturated).
    # They get that verdict, do not take their blocks from the others, and still count in the family.
    stopped: Mapping[str, VerdictLabel] | None = None,
    # Where each block was run, of a study over several places. Neighbours are then blocks of one place, and a contrast
    # that is not the same in all of them says so.
    places: Mapping[Any, str] | None = None,
    # Of a quantile that is known to a bucket only: the bucket's width as a share of it. Intervals are widened by it.
    resolution: Mapping[str, float] | None = None,
) -> tuple[ContrastResult, ...]:
    """Compare, correct and judge all contrasts of one response at one load: in the order of the family, the twin last.

    UsageError if names, shapes or values cannot be used.
    """
    pairs = family.pairs(list(values))
    stopped = stopped or {}
    kept = {name: np.asarray(v, dtype=np.float64) for name, v in values.items() if name not in stopped}
    sample = _Sample(family, kept)
    if sample.paired:
        sample = _complete_blocks(family, sample.values, blocks, places or {})
    m, aa = max(1, len(pairs)), (family.twin or "", family.baseline)
    twin, compared = sample.compare(aa, 1), [sample.compare(pair, m) for pair in pairs]
    noise = noise_floor(twin) if twin and sample.paired else None
    told = _excluded_warnings(sample), _twin_warnings(sample, twin, noise), _dependence(sample)
    beside = _Beside(sample, stopped, resolution or {}, noise, *told)
    judged = zip(pairs, compared, sample.corrected(pairs, compared), strict=True)
    results = [_judge(beside, pair, family.role, c, p, family.adjustment) for pair, c, p in judged]
    if family.twin:
        results.append(_judge(beside, aa, "a/a", twin, _p_values(twin), "none"))
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Beside:
    """What every contrast of a family is judged beside."""

    sample: _Sample
    stopped: Mapping[str, VerdictLabel]
    resolution: Mapping[str, float]
    noise: NoiseFloor | None
    excluded: tuple[Warning, ...]
    noise_exceeds_margin: tuple[Warning, ...]  # what the A/A check says
    dependent: tuple[Warning, ...]  # what all treatments show together


def _dependence(sample: _Sample) -> tuple[Warning, ...]:
    warnings: tuple[Warning, ...] = ()
    for here in sample.by_place:
        # What is zero throughout has no logarithm, and no states of its own.
        warnings += all_dependent([v[here] for v in sample.values.values() if v.any()], sample.family.scale)
    return warnings


def _judge(
    beside: _Beside, pair: Pair, role: Role, c: Comparison | None, p: _PValues, adjustment: Adjustment
) -> ContrastResult:
    """One contrast with its corrected p-values."""
    sample, family = beside.sample, beside.sample.family
    scale = family.scale_of(pair)
    depends, apart = beside.dependent, tuple[Warning, ...]()
    # The twin says how large noise is on its own scale alone.
    alike = scale == family.scale_of((family.twin or "", family.baseline))
    floor, noise_exceeds_margin = (beside.noise, beside.noise_exceeds_margin) if alike else (None, ())
    shared = (*beside.excluded, *noise_exceeds_margin)
    if c is not None and beside.resolution:
        c = c.widened(*(beside.resolution.get(name, 0.0) for name in pair))
    if c is not None and sample.paired:
        t, b = (sample.values[name] for name in pair)
        own = (w for here in sample.by_place for w in dependent_blocks(t[here], b[here], scale=scale))
        depends, apart = (*own, *beside.dependent), places_differ(t, b, sample.places, scale=scale)
    verdict = decide(
        c,
        p_adjusted=p[0],
        p_equivalence_adjusted=p[1],
        p_material_adjusted=p[2],
        noise=floor,
        dependent=bool(depends),
        kind=family.kind,
        stopped=_stopped(beside.stopped, pair),
    )
    warnings = shared
    if c is not None:
        flips = influence(t, b, c, verdict, p[0], p[1], sample.blocks) if sample.paired else ()
        warnings = (*c.warnings, *depends, *apart, *flips, *shared)
    return ContrastResult(*pair, role, c, *p, adjustment, verdict, floor, warnings)


def _stopped(stopped: Mapping[str, VerdictLabel], pair: Pair) -> VerdictLabel | None:
    """Invalid where either treatment is, else saturated."""
    words = [stopped[name] for name in pair if name in stopped]
    return VerdictLabel.INVALID if VerdictLabel.INVALID in words else next(iter(words), None)
