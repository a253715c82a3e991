"""A CI gate: verdicts pass or fire it, by rules that the user gives before the verdicts exist.

Opinion: a gate decides nothing beyond the verdict table. It compares the verdict of every primary contrast with the
rules; the A/A twin and exploratory responses do not count. The labels `saturated` and `invalid` may come from the
baseline alone, so ``saturated:treatment`` looks at the treatment's side only. A verdict that no rule names passes
`fail_on` and breaks `require`, so the user chooses what an open verdict does. An unfinished study passes no gate, and
neither does a study without a primary contrast.

Limit: every primary response at every load is a family with an error rate of its own, and a gate looks at all of them.
`GateOutcome.false_alarms` is the resulting bound; few primary responses, or a smaller alpha, keep it low.

`ending` says whether a study gave a verdict at all, and which runs were excluded from its verdicts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshtrial.design.parameters import split_list
from meshtrial.design.plan import Plan
from meshtrial.design.responses import REGISTRY, Response
from meshtrial.errors import UsageError
from meshtrial.inference.rows import primary_names
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import part_of
from meshtrial.records.schema import ContrastKey, GateResult, RunRecord, VerdictRow
from meshtrial.vocabulary import BELOW_MARGIN, BOTH, MATERIAL, THE_BASELINE, VerdictLabel, directions

# Qualifiers as a user types them, with the qualifiers of a verdict's row that they match: those of a difference, and
# the sides of a contrast that was not compared.
QUALIFIERS = {qualifier.replace(" ", "-"): (qualifier,) for qualifier in (MATERIAL, BELOW_MARGIN)}
SIDES = {"treatment": ("", BOTH), "baseline": (THE_BASELINE, BOTH)}
FAIL_ON, REQUIRE = "--fail-on", "--require"
MOST_NAMED = 3


@dataclass(frozen=True)
class Rule:
    """A verdict, with a qualifier if one is required."""

    word: VerdictLabel
    qualifier: str = ""

    def matches(self, word: VerdictLabel, qualifier: str) -> bool:
        """Whether the rule names this verdict."""
        return word == self.word and (not self.qualifier or qualifier in (QUALIFIERS | SIDES)[self.qualifier])

    def __str__(self) -> str:
        return f"{self.word}:{self.qualifier}" if self.qualifier else str(self.word)


@dataclass(frozen=True)
class Rules:
    """A primary contrast fires the gate if its verdict is one of `fail_on`, or none of `require`."""

    fail_on: tuple[Rule, ...] = ()
    require: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fail_on or self.require)

    def __str__(self) -> str:
        pairs = ((FAIL_ON, self.fail_on), (REQUIRE, self.require))
        return " ".join(f"{option} {','.join(map(str, rules))}" for option, rules in pairs if rules)


@dataclass(frozen=True)
class DeclaredContrast:
    """A declared primary contrast, which must have a verdict."""

    load: str
    response: Response
    treatment: str
    baseline: str
    family: str = ""

    @property
    def key(self) -> ContrastKey:
        """Key of its row."""
        return self.load, self.response.name, self.treatment, self.baseline

    def __str__(self) -> str:
        at = f" at {self.load}" if self.load else ""
        return " ".join(f"{self.treatment} against {self.baseline}, {self.response.label}{at}".split())


@dataclass(frozen=True)
class Judged:
    """A primary contrast, its row if it has a verdict, and the option that it breaks, as typed."""

    declared: DeclaredContrast
    row: VerdictRow | None
    broken: str = ""

    @property
    def word(self) -> VerdictLabel:
        """The verdict; a contrast without one is invalid."""
        return self.row.verdict if self.row else VerdictLabel.INVALID

    @property
    def sentence(self) -> str:
        """The verdict as printed."""
        return self.row.sentence if self.row else "no verdict: the response was not reported"

    def __str__(self) -> str:
        return f"{self.declared}: {self.sentence}"


@dataclass(frozen=True)
class GateOutcome:
    """The result of a gate for every declared primary contrast; `alpha` is the error level of a family."""

    rules: Rules
    judged: tuple[Judged, ...]
    alpha: float

    @property
    def fired(self) -> bool:
        """Whether the gate fails."""
        return bool(self.rules) and (not self.judged or any(one.broken for one in self.judged))

    @property
    def families(self) -> dict[tuple[str, str, str], Response]:
        """The response of each family of contrasts, by load, response and the family's name."""
        every = (one.declared for one in self.judged)
        return {(one.load, one.response.name, one.family): one.response for one in every}

    @property
    def false_alarms(self) -> float:
        """Upper bound of the share of gates that fire by chance if nothing differs.

        It is half of alpha for each direction that the rules name, in each family. Correction keeps that for any number
        of contrasts; families are not corrected for each other.
        """
        words = {rule.word for rule in self.rules.fail_on}
        counted = sum(word in words for one in self.families.values() for word in directions(one.kind))
        return min(1.0, counted * self.alpha / 2)

    @property
    def line(self) -> str:
        """The result and its reason in one line."""
        if not self.judged:
            reason = "there is no primary contrast to judge"
            return f"gate fired: {reason}" if self.rules else reason
        many = len(self.judged)
        broken = [one for one in self.judged if one.broken]
        if not broken:
            counted = Counter(one.word for one in self.judged)
            words = ", ".join(f"{counted[word]} {word}" for word in VerdictLabel if word in counted)
            head = "gate passed: " if self.rules else ""
            return f"{head}{many} primary contrast{'s' * (many > 1)}: {words}"
        listed = "; ".join(f"{one} ({one.broken})" for one in broken[:MOST_NAMED])
        rest = f"; and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
        return " ".join(f"gate fired: {len(broken)} of {many} primary contrasts: {listed}{rest}".split())


def read_rules(fail_on: Iterable[str] = (), require: Iterable[str] = ()) -> Rules:
    """Read rules as typed, ``slower,more`` or ``slower:material``, one item per use of the option."""
    rules = Rules(_read(FAIL_ON, fail_on), _read(REQUIRE, require))
    for rule in rules.require:
        if rule.word is VerdictLabel.PROVISIONAL:
            raise UsageError(f"{REQUIRE} provisional: an unfinished study passes no gate; leave it out")
        if rule in rules.fail_on:
            raise UsageError(f"{FAIL_ON} and {REQUIRE} both name {rule}, so no verdict could pass; leave one out")
    return rules


def _read(option: str, texts: Iterable[str]) -> tuple[Rule, ...]:
    texts = list(texts)
    items = [item for text in texts for item in split_list(text)]
    if texts and not items:
        raise UsageError(f"{option}: names no verdict; use one of {', '.join(VerdictLabel)}")
    return tuple(dict.fromkeys(_rule(option, item) for item in items))


def _rule(option: str, item: str) -> Rule:
    typed, colon, qualifier = item.partition(":")
    if typed not in [*VerdictLabel]:
        raise UsageError(f"{option} {item}: unknown verdict {typed!r}; use one of {', '.join(VerdictLabel)}")
    word = VerdictLabel(typed)
    names = QUALIFIERS if word.different else SIDES if word.standing == "stopped" else ()
    if colon and not names:
        qualified = ", ".join(one for one in VerdictLabel if one.different or one.standing == "stopped")
        raise UsageError(f"{option} {item}: {word} has no qualifier; only these have: {qualified}")
    if colon and qualifier not in names:
        allowed = " and ".join(f"{word}:{name}" for name in names)
        raise UsageError(f"{option} {item}: unknown qualifier {qualifier!r}; use {word}, {allowed}")
    return Rule(word, qualifier)


def declared_by(plan: Plan) -> tuple[DeclaredContrast, ...]:
    """Return the primary contrasts that a plan declares, except the twin's."""
    study = plan.study
    return tuple(
        DeclaredContrast(load.label, REGISTRY[name], contrast.treatment, contrast.baseline, contrast.family)
        for load in study.loads
        for name in primary_names(plan, load.label)
        for contrast in study.all_contrasts()
    )


def judge(rows: Sequence[VerdictRow], declared: Sequence[DeclaredContrast], rules: Rules, alpha: float) -> GateOutcome:
    """Compare every declared primary contrast with the rules.

    Rows of the twin and exploratory rows are ignored. A declared contrast without a row is invalid and never passes
    `require`.
    """
    primary = {row.key: row for row in rows if not row.twin and not row.exploratory}
    judged = (Judged(one, primary.get(one.key), _broken(primary.get(one.key), rules)) for one in declared)
    return GateOutcome(rules, tuple(judged), alpha)


def _broken(row: VerdictRow | None, rules: Rules) -> str:
    word, qualifier = (row.verdict, row.qualifier) if row else (VerdictLabel.INVALID, "")
    for rule in rules.fail_on:
        if rule.matches(word, qualifier):
            return f"{FAIL_ON} {rule}"
    if rules.require and (row is None or not any(rule.matches(word, qualifier) for rule in rules.require)):
        return f"{REQUIRE} {','.join(map(str, rules.require))}"
    return "an unfinished study passes no gate" if rules and word is VerdictLabel.PROVISIONAL else ""


# A check's message has its advice after the first colon or semicolon outside brackets.
_ADVICE = re.compile(r"[:;] (?![^(]*\))")


@dataclass(frozen=True)
class Ending:
    """Whether a study gave verdicts, and what was excluded from them."""

    has_verdict: bool  # whether a primary contrast was judged, or no verdict is expected yet
    excluded: str  # excluded blocks and treatments with the reasons; empty if there are none


def ending(data: StudyData, *, measured: bool = True) -> Ending:
    """Return the ending of a study; if it was only reported, not `measured`, an unfinished one needs no verdict."""
    judged = [row for row in data.verdicts if not row.exploratory]
    words = {row.verdict for row in judged if not row.twin} or {row.verdict for row in judged}
    # A part of a divided study has no verdict of its own.
    is_due = part_of(data.plan, data.environment) is None and (measured or VerdictLabel.PROVISIONAL not in words)
    return Ending(not is_due or not words <= {VerdictLabel.INVALID, VerdictLabel.PROVISIONAL}, _excluded(data))


def _excluded(data: StudyData) -> str:
    lines = []
    for load, inclusion in data.inclusions.items():
        at = f" at {load}" if len(data.plan.study.loads) > 1 else ""
        if inclusion.excluded:
            several = "s" * (len(inclusion.excluded) > 1)
            every = len(inclusion.excluded) == len(data.plan.study.treatments)
            named = "every treatment" if every else f"treatment{several} {' and '.join(inclusion.excluded)}"
            failed = [run for run in inclusion.chosen.values() if run.treatment in inclusion.excluded and not run.valid]
            lines.append(f"{named}{at} excluded: {_why(failed)}")
        if lost := len(inclusion.excluded_blocks):
            total = lost + len(inclusion.blocks) + len(inclusion.unfinished)
            failed = [run for runs in inclusion.excluded_blocks.values() for run in runs]
            used = f"; the verdicts use the other {len(inclusion.blocks)}" if inclusion.blocks else ""
            lines.append(f"{lost} of {total} blocks{at} excluded: {_why(failed)}{used}")
    return "; ".join(lines)


def _why(failed: Sequence[RunRecord]) -> str:
    """Return the worst value of every failed check, or the first reason of a run that failed none."""
    worst: dict[str, GateResult] = {}
    for gate in (gate for run in failed for gate in run.failed_gates):
        if gate.name not in worst or (gate.value or 0.0) > (worst[gate.name].value or 0.0):
            worst[gate.name] = gate
    others = [run.reasons[0] for run in failed if run.reasons and not run.failed_gates]
    return ", ".join([*(_ADVICE.split(gate.message)[0] for gate in worst.values()), *dict.fromkeys(others[:1])])
