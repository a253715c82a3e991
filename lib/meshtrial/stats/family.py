"""All contrasts of one response at one load: compared, corrected together, judged.

The family is the unit of inference. It is declared before the first run, so a treatment that turned out invalid still
counts in the correction; the A/A twin is the study's own instrument check and stands outside.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from meshtrial.stats.blocks import complete_blocks, declared_contrasts
from meshtrial.stats.comparison import PairedComparison, Scale
from meshtrial.stats.contrast import compare_paired
from meshtrial.stats.equivalence import Margin
from meshtrial.stats.influence import influence
from meshtrial.stats.multiplicity import benjamini_hochberg, holm
from meshtrial.stats.noise import NoiseFloor, noise_floor
from meshtrial.stats.unpaired import UnpairedComparison, compare_unpaired
from meshtrial.stats.verdict import Kind, Verdict, decide
from meshtrial.stats.warning import Warning

Role = Literal["primary", "exploratory", "a/a"]


@dataclass(frozen=True, slots=True)
class ContrastResult:
    """One contrast of a family, judged.

    Attributes
    ----------
    treatment, baseline : str
        The pair.
    role : {"primary", "exploratory", "a/a"}
        What the verdict counts for.
    comparison : PairedComparison or UnpairedComparison or None
        None where the treatment is invalid or saturated, or fewer than 2 complete blocks are left.
    p_adjusted, p_equivalence_adjusted : float or None
        Corrected by `adjustment`.
    adjustment : {"holm", "benjamini-hochberg", "none"}
        Holm for a primary response, Benjamini-Hochberg for an exploratory one, none for the twin.
    m_family : int
        Contrasts corrected together.
    verdict : Verdict
        What may be said.
    noise : NoiseFloor or None
        Noise floor of this response and load, where the family has a twin.
    left_out : tuple
        Labels of the blocks that left the inference for every treatment.
    warnings : tuple of Warning
        Of the comparison and of the family.
    """

    treatment: str
    baseline: str
    role: Role
    comparison: PairedComparison | UnpairedComparison | None
    p_adjusted: float | None
    p_equivalence_adjusted: float | None
    adjustment: Literal["holm", "benjamini-hochberg", "none"]
    m_family: int
    verdict: Verdict
    noise: NoiseFloor | None
    left_out: tuple[Hashable, ...]
    warnings: tuple[Warning, ...]

    @property
    def p_holm(self) -> float | None:
        """Holm-corrected p-value; None for a contrast that was not corrected by Holm."""
        return self.p_adjusted if self.adjustment == "holm" else None


def _corrected(p: list[float | None], m: int, primary: bool) -> list[float | None]:
    known = [value for value in p if value is not None]
    adjusted = iter((holm(known, m) if primary else benjamini_hochberg(known, m)).tolist() if known else [])
    return [None if value is None else next(adjusted) for value in p]


def _family_warnings(
    aa: PairedComparison | None, noise: NoiseFloor | None, gone: tuple[Hashable, ...], n: int
) -> tuple[Warning, ...]:
    found: list[Warning] = []
    if gone:
        names = ", ".join(str(g) for g in gone)
        text = f"{len(gone)} of {n + len(gone)} blocks left the inference for all treatments ({names}): see their gates"
        found.append(Warning("blocks-left-out", text))
    if aa is None or noise is None or aa.provisional:
        return tuple(found)
    if aa.p <= aa.alpha:
        text = (
            f"the baseline and its identical twin differ (p = {aa.p:.3g}), as chance alone does in {aa.alpha:.0%} of "
            "studies: look for what else changes between runs, and repeat before acting on small effects"
        )
        found.append(Warning("aa-differs", text))
    if aa.margin_high is not None and noise.floor > aa.margin_high - aa.no_effect:
        text = (
            f"the A/A arms differ by {noise.floor:.3g}, more than the margin {aa.margin_high - aa.no_effect:.3g}: "
            "quieten the machine, measure longer or add blocks; only effects beyond the noise floor are called"
        )
        found.append(Warning("noise-floor", text))
    return tuple(found)


def analyse_family(
    values: Mapping[str, ArrayLike],
    baseline: str,
    *,
    twin: str | None = None,
    contrasts: Sequence[tuple[str, str]] | None = None,
    alpha: float = 0.05,
    margin: Margin | None = None,
    kind: Kind = "latency",
    primary: bool = True,
    scale: Scale = "ratio",
    blocks: Sequence[Hashable] | None = None,
    invalid: Mapping[str, str] | None = None,
    saturated: Mapping[str, str] | None = None,
    m_family: int | None = None,
) -> tuple[ContrastResult, ...]:
    """Compare, correct and judge all contrasts of one response at one load.

    Parameters
    ----------
    values : mapping of treatment to (blocks,) array_like
        One value a block and treatment, in the same order of blocks; nan where a run has none. A block with a nan
        leaves the inference for every treatment.
    baseline : str
        The control arm.
    twin : str, optional
        The baseline's A/A twin: analysed by itself, never corrected, never in the family.
    contrasts : sequence of (treatment, baseline), optional
        The declared pairs; by default every treatment against the baseline.
    alpha : float
        Family-wise error rate.
    margin : Margin, optional
        Equivalence margin of this response.
    kind : {"latency", "resource", "level"}
        Words for the direction.
    primary : bool
        A declared primary response is corrected by Holm; any other is exploratory, Benjamini-Hochberg.
    scale : {"ratio", "difference"}
        ``"difference"`` where a baseline is zero by construction.
    blocks : sequence, optional
        Labels of the blocks.
    invalid, saturated : mapping of treatment to reason, optional
        Treatments whose gates or proofs failed as a whole, or that did not keep up with the load. They get that
        verdict, do not take their blocks from the others, and still count in the family.

    Returns
    -------
    tuple of ContrastResult
        In the order of the family, the twin last.

    Raises
    ------
    UsageError
        If names, shapes or values cannot be used.
    """
    invalid, saturated = invalid or {}, saturated or {}
    pairs = declared_contrasts(list(values), baseline, twin, contrasts)
    arms, labels, gone = complete_blocks(values, {*invalid, *saturated}, blocks)
    m = max(1, len(pairs), m_family or 0)

    def compare(treatment: str, control: str, m_family: int) -> PairedComparison | None:
        if treatment not in arms or control not in arms or len(labels) < 2:
            return None
        return compare_paired(
            arms[treatment], arms[control], alpha=alpha, margin=margin, scale=scale, m_family=m_family
        )

    aa = compare(twin, baseline, 1) if twin else None
    noise = noise_floor(aa) if aa else None
    shared = _family_warnings(aa, noise, gone, len(labels))
    found = [compare(a, b, m) for a, b in pairs]
    p = _corrected([c.p if c else None for c in found], m, primary)
    p_eq = _corrected([c.p_equivalence if c else None for c in found], m, primary)

    def judge(
        pair: tuple[str, str], c: PairedComparison | None, role: Role, p_adj: float | None, p_eq_adj: float | None
    ) -> ContrastResult:
        verdict = decide(
            c,
            p_adjusted=p_adj,
            p_equivalence_adjusted=p_eq_adj,
            noise=noise,
            kind=kind,
            invalid=next((invalid[name] for name in pair if name in invalid), None),
            saturated=next((saturated[name] for name in pair if name in saturated), None),
        )
        warnings = shared
        if c is not None:
            flips = influence(arms[pair[0]], arms[pair[1]], c, verdict, p_adj, p_eq_adj, labels)
            warnings = (*c.warnings, *flips, *shared)
        adjustment: Literal["holm", "benjamini-hochberg", "none"] = (
            "none" if role == "a/a" else "holm" if role == "primary" else "benjamini-hochberg"
        )
        size = 1 if role == "a/a" else m
        return ContrastResult(
            pair[0], pair[1], role, c, p_adj, p_eq_adj, adjustment, size, verdict, noise, gone, warnings
        )

    role: Role = "primary" if primary else "exploratory"
    results = [judge(pair, c, role, a, e) for pair, c, a, e in zip(pairs, found, p, p_eq, strict=True)]
    if twin:
        own_p, own_eq = (aa.p, aa.p_equivalence) if aa else (None, None)
        results.append(judge((twin, baseline), aa, "a/a", own_p, own_eq))
    return tuple(results)


def analyse_unpaired(
    values: Mapping[str, ArrayLike],
    baseline: str,
    *,
    alpha: float = 0.05,
    margin: Margin | None = None,
    kind: Kind = "latency",
    primary: bool = True,
    scale: Scale = "ratio",
) -> tuple[ContrastResult, ...]:
    """Like `analyse_family`, for runs that are not paired: every treatment against the baseline by the exact
    Mann-Whitney test.

    Parameters
    ----------
    values : mapping of treatment to (runs,) array_like
        One value a run; the arms may differ in length.
    baseline, alpha, margin, kind, primary, scale
        As in `analyse_family`.

    Returns
    -------
    tuple of ContrastResult
        Each with the warning ``order-unknown``.
    """
    pairs = declared_contrasts(list(values), baseline, None, None)
    m = max(1, len(pairs))
    found = [
        compare_unpaired(values[a], values[b], alpha=alpha, margin=margin, scale=scale, m_family=m) for a, b in pairs
    ]
    p = _corrected([c.p for c in found], m, primary)
    p_eq = _corrected([c.p_equivalence for c in found], m, primary)
    role: Role = "primary" if primary else "exploratory"
    adjustment: Literal["holm", "benjamini-hochberg"] = "holm" if primary else "benjamini-hochberg"
    return tuple(
        ContrastResult(
            a, b, role, c, p_a, p_e, adjustment, m,
            decide(c, p_adjusted=p_a, p_equivalence_adjusted=p_e, kind=kind), None, (), c.warnings,
        )
        for (a, b), c, p_a, p_e in zip(pairs, found, p, p_eq, strict=True)
    )  # fmt: skip
