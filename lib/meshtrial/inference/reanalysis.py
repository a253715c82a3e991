"""A recorded study under another margin, error level or baseline, chosen after its runs.

Opinion: a reader who knows the numbers can choose a margin that gives the preferred verdict, so the result is never the
study's verdict. It is the same inference on the same runs, every row names what was declared instead, and nothing is
written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshtrial.design.responses import REGISTRY, declared_margins
from meshtrial.design.study import Contrast, Study, with_pairs
from meshtrial.errors import UsageError
from meshtrial.inference import judge
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.vocabulary import AFTER_THE_FACT, BETWEEN, CORRECTIONS, Warning

_NBSP = "\u00a0"


@dataclass(frozen=True)
class Reanalysis:
    """A study under another analysis."""

    data: StudyData  # the same runs, with the plan and the verdicts of the other analysis
    # The choices and the declarations that they replace; empty if both are the same, and then all numbers are too
    changes: str


def reanalyse(
    data: StudyData, *, margin: str = "", alpha: float | None = None, baseline: str = "", pairs: bool = False
) -> Reanalysis:
    """Judge the recorded runs again; raise UsageError for an impossible margin, level or treatment.

    `margin` is ``10%``, ``0.2ms``, ``10%,0.2ms`` for every response or ``p50=5%,p99=10%`` for some; others keep theirs.
    `alpha` is the error level of a family. All other treatments are compared with the `baseline`, in one family per
    response and load; the A/A twin remains that of the study's own baseline. With `pairs`, all pairs of treatments are
    compared too, corrected by max-T.
    """
    declared = data.plan.study
    asked = declared
    if margin:
        asked = replace(asked, margins=declared_margins([margin], declared.margins))
    if alpha is not None:
        asked = replace(asked, alpha=alpha)
    if baseline:
        asked = replace(asked, contrasts=_against(declared, baseline))
    if pairs and baseline:
        raise UsageError("baseline and pairs: all pairs include every baseline; leave one out")
    if pairs:
        asked = replace(asked, contrasts=with_pairs(asked), correction="max-t")
    changes = _changes(declared, asked, baseline)
    plan = replace(data.plan, study=asked)
    rows = judge(data.plan, plan, data.runs, data.table, data.environment)
    if changes:
        mark = Warning(AFTER_THE_FACT, changes)
        rows = [replace(row, exploratory=True, warnings=(mark, *row.warnings)) for row in rows]
    return Reanalysis(replace(data, plan=plan, verdicts=tuple(rows)), changes)


def _against(study: Study, baseline: str) -> tuple[Contrast, ...]:
    names = [treatment.name for treatment in study.treatments if not treatment.twin]
    if baseline not in names:
        raise UsageError(f"baseline {baseline!r}: must be one of {', '.join(names)}")
    if baseline == study.baseline.name and not study.contrasts:
        return ()
    return tuple(Contrast(name, baseline) for name in names if name != baseline)


def _changes(declared: Study, asked: Study, baseline: str) -> str:
    parts = _margin_changes(declared, asked)
    if asked.alpha != declared.alpha:
        parts.append(f"alpha {asked.alpha:g} instead of {declared.alpha:g}")
    if asked.correction != declared.correction:
        parts.append(f"{CORRECTIONS[asked.correction]} instead of {CORRECTIONS[declared.correction]}")
    if BETWEEN in asked.families() and BETWEEN not in declared.families():
        parts.append("all pairs of treatments beside the declared contrasts")
    if _without_pairs(asked) != _without_pairs(declared):
        before = "the declared contrasts" if declared.contrasts else declared.baseline.name
        parts.append(f"baseline {baseline} instead of {before}")
    return f"{'; '.join(parts)}, declared before the runs" if parts else ""


def _without_pairs(study: Study) -> set[Contrast]:
    return {one for name, family in study.families().items() if name != BETWEEN for one in family}


def _margin_changes(declared: Study, asked: Study) -> list[str]:
    """Describe changed margins of primary responses; each part names its responses unless it applies to all."""
    changed = {name: now for name, now in asked.margins.items() if now != declared.margins.get(name)}
    parts: list[str] = []
    for word, of in (("margin", _relative), ("floor", _floor)):
        groups: dict[str, dict[str, str]] = {}
        for name in declared.primary:
            if name in changed and of(name, changed[name]) != of(name, declared.margins.get(name)):
                groups.setdefault(of(name, changed[name]), {})[name] = of(name, declared.margins.get(name)) or "none"
        for now, before in groups.items():
            whole = len(before) == sum(bool(of(name, asked.margins.get(name))) for name in declared.primary)
            named = "" if whole else f" of {_listing([REGISTRY[name].label.replace(', ', ' of ') for name in before])}"
            parts.append(f"{word}{named} {now or 'none'} instead of {_listing(list(dict.fromkeys(before.values())))}")
    return parts or (["margins of exploratory responses"] if changed else [])


def _relative(name: str, margin: Margin | None) -> str:
    return f"{100 * margin.relative:.6g}{_NBSP}%" if margin and margin.relative else ""


def _floor(name: str, margin: Margin | None) -> str:
    return f"{margin.floor * REGISTRY[name].scale:.6g}{_NBSP}{REGISTRY[name].unit}" if margin and margin.floor else ""


def _listing(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
