"""A gate: from verdicts to pass or fire, by rules that the user gives before the verdicts are there.

Opinion: a gate decides nothing that the verdict table does not say. It asks which word every primary contrast got; the
A/A twin and exploratory responses have no say. A word that no rule names passes `fail_on` and breaks `require`: what an
open verdict does is therefore the user's choice. An unfinished study passes no gate, and neither does a study without
a primary contrast: nothing was judged there.

Limit: every primary response at every load is a family with an error rate of its own, and a gate looks at all of them.
`GateOutcome.false_alarms` is the bound that follows; few primary responses, or a smaller alpha, keep it low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshtrial.design.parameters import split_list
from meshtrial.design.plan import Plan
from meshtrial.design.responses import REGISTRY, Response
from meshtrial.errors import UsageError
from meshtrial.inference.rows import primary_names
from meshtrial.records.schema import ContrastKey, VerdictRow
from meshtrial.vocabulary import BELOW_MARGIN, MATERIAL, VerdictLabel, directions

# As they are typed, and as a verdict's row has them.
QUALIFIERS = {qualifier.replace(" ", "-"): qualifier for qualifier in (MATERIAL, BELOW_MARGIN)}
FAIL_ON, REQUIRE = "--fail-on", "--require"
MOST_NAMED = 3


@dataclass(frozen=True)
class Rule:
    """A verdict's word, and the qualifier it must have where one is named."""

    word: VerdictLabel
    qualifier: str = ""

    def matches(self, word: VerdictLabel, qualifier: str) -> bool:
        """Whether a verdict is meant."""
        return word == self.word and (not self.qualifier or qualifier == QUALIFIERS[self.qualifier])

    def __str__(self) -> str:
        return f"{self.word}:{self.qualifier}" if self.qualifier else str(self.word)


@dataclass(frozen=True)
class Rules:
    """What a gate goes by: a primary contrast that is one of `fail_on`, or none of `require`, fires it."""

    fail_on: tuple[Rule, ...] = ()
    require: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fail_on or self.require)

    def __str__(self) -> str:
        pairs = ((FAIL_ON, self.fail_on), (REQUIRE, self.require))
        return " ".join(f"{option} {','.join(map(str, rules))}" for option, rules in pairs if rules)


@dataclass(frozen=True)
class DeclaredContrast:
    """A primary contrast that was declared: it is to have a verdict."""

    load: str
    response: Response
    treatment: str
    baseline: str
    family: str = ""

    @property
    def key(self) -> ContrastKey:
        """As its row has it."""
        return self.load, self.response.name, self.treatment, self.baseline

    def __str__(self) -> str:
        at = f" at {self.load}" if self.load else ""
        return " ".join(f"{self.treatment} against {self.baseline}, {self.response.label}{at}".split())


@dataclass(frozen=True)
class Judged:
    """A primary contrast, its row where it has a verdict at all, and the option that it breaks, with its words."""

    declared: DeclaredContrast
    row: VerdictRow | None
    broken: str = ""

    @property
    def word(self) -> VerdictLabel:
        """The verdict's word; what has no verdict is invalid."""
        return self.row.verdict if self.row else VerdictLabel.INVALID

    @property
    def sentence(self) -> str:
        """The verdict as it is printed."""
        return self.row.sentence if self.row else "no verdict: it was not reported"

    def __str__(self) -> str:
        return f"{self.declared}: {self.sentence}"


@dataclass(frozen=True)
class GateOutcome:
    """What a gate came to: every primary contrast, as declared; `alpha` is the error level of a family."""

    rules: Rules
    judged: tuple[Judged, ...]
    alpha: float

    @property
    def fired(self) -> bool:
        """Whether the gate does not pass."""
        return bool(self.rules) and (not self.judged or any(one.broken for one in self.judged))

    @property
    def families(self) -> dict[tuple[str, str, str], Response]:
        """The response of each family of contrasts, by load, response and the family's name."""
        every = (one.declared for one in self.judged)
        return {(one.load, one.response.name, one.family): one.response for one in every}

    @property
    def false_alarms(self) -> float:
        """The share of gates that a difference fires at most by chance, were there none.

        Half of alpha for each direction that the rules name, in each family. Correction keeps a family at that
        whatever the number of its contrasts; families are not corrected for each other.
        """
        named = {rule.word for rule in self.rules.fail_on}
        counted = sum(word in named for one in self.families.values() for word in directions(one.kind))
        return min(1.0, counted * self.alpha / 2)

    @property
    def line(self) -> str:
        """The outcome and its reason in one line."""
        if not self.judged:
            said = "there is no primary contrast to judge"
            return f"gate fired: {said}" if self.rules else said
        many = len(self.judged)
        broken = [one for one in self.judged if one.broken]
        if not broken:
            counted = Counter(one.word for one in self.judged)
            words = ", ".join(f"{counted[word]} {word}" for word in VerdictLabel if word in counted)
            head = "gate passed: " if self.rules else ""
            return f"{head}{many} primary contrast{'s' * (many > 1)}: {words}"
        named = "; ".join(f"{one} ({one.broken})" for one in broken[:MOST_NAMED])
        rest = f"; and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
        return " ".join(f"gate fired: {len(broken)} of {many} primary contrasts: {named}{rest}".split())


def read_rules(fail_on: Iterable[str] = (), require: Iterable[str] = ()) -> Rules:
    """Rules as they are typed: ``slower,more`` or ``slower:material``, an item for every time the option was given."""
    rules = Rules(_read(FAIL_ON, fail_on), _read(REQUIRE, require))
    for rule in rules.require:
        if rule.word is VerdictLabel.PROVISIONAL:
            raise UsageError(f"{REQUIRE} provisional: an unfinished study passes no gate; leave it out")
        if rule in rules.fail_on:
            raise UsageError(f"{FAIL_ON} and {REQUIRE} both name {rule}: no verdict could pass by it; leave one out")
    return rules


def _read(option: str, texts: Iterable[str]) -> tuple[Rule, ...]:
    texts = list(texts)
    items = [item for text in texts for item in split_list(text)]
    if texts and not items:
        raise UsageError(f"{option}: names no verdict; must be one of {', '.join(VerdictLabel)}")
    return tuple(dict.fromkeys(_rule(option, item) for item in items))


def _rule(option: str, item: str) -> Rule:
    typed, colon, qualifier = item.partition(":")
    if typed not in [*VerdictLabel]:
        raise UsageError(f"{option} {item}: no verdict is called {typed!r}; must be one of {', '.join(VerdictLabel)}")
    word = VerdictLabel(typed)
    if colon and not word.different:
        different = ", ".join(one for one in VerdictLabel if one.different)
        raise UsageError(f"{option} {item}: only a difference has a qualifier, one of {different}")
    if colon and qualifier not in QUALIFIERS:
        allowed = " and ".join(f"{word}:{name}" for name in QUALIFIERS)
        raise UsageError(f"{option} {item}: no verdict is {qualifier!r}; must be one of {word}, {allowed}")
    return Rule(word, qualifier)


def declared_by(plan: Plan) -> tuple[DeclaredContrast, ...]:
    """The primary contrasts that a plan declares, the twin's apart."""
    study = plan.study
    return tuple(
        DeclaredContrast(load.label, REGISTRY[name], contrast.treatment, contrast.baseline, contrast.family)
        for load in study.loads
        for name in primary_names(plan, load.label)
        for contrast in study.all_contrasts()
    )


def judge(rows: Sequence[VerdictRow], declared: Sequence[DeclaredContrast], rules: Rules, alpha: float) -> GateOutcome:
    """Hold every declared primary contrast against the rules.

    Rows of the twin and exploratory ones are passed over. A declared contrast without a row is invalid, and never
    passes what is required.
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
