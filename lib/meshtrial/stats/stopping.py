"""When a study may stop. There are three rules, and the plan declares one of them before the first run.

- ``fixed``: after n blocks. The default.
- ``precision``: when every primary interval is narrow enough, or at n_max. It looks at the width only, never at the
  sign or the p-value, so it does not search for significance. Narrow intervals still miss more often, so studies plan
  its first look at block 12 and its intervals at .9 of the error rate.
- ``two-looks``: at n = 10 and n = 16, with .01 and then .04 of the error rate (a union bound: .05 in all).

Looking after every block from 6 to 12 and stopping at the first p <= .05 gives 11 % false positives (simulated).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from meshtrial.errors import UsageError
from meshtrial.stats.contrast import Comparison
from meshtrial.typed import read


@dataclass(frozen=True, slots=True)
class Progress:
    """What a rule may know about a running study."""

    run: int  # blocks that were run
    complete: int  # blocks that are complete for every treatment
    # Relative half-width of every primary interval (`half_width`), by contrast; for the precision rule
    half_widths: Mapping[str, float] = field(default_factory=dict)
    # Whether every primary contrast is settled at the level of this look; for two looks
    conclusive: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to stop, and why."""

    stop: bool  # whether no further block is run
    # Error rate of the analysis at this point: of the final analysis if `stop`, else of the interim look
    alpha: float
    reason: str  # with the numbers


def half_width(comparison: Comparison) -> float:
    """Return the relative half-width of an interval: sqrt(high/low) - 1, or that of a difference over the larger level.

    It is never relative to the difference itself. Studies would then stop when chance makes the difference large, and a
    fifth of studies of equal treatments would call one (simulated, target 1). It is infinite for a
    provisional interval, which must not stop a study.
    """
    c, effect = comparison, comparison.effect
    # An interval with an open end (runs that rank worst) has no width.
    if c.provisional or not math.isfinite(effect.high - effect.low):
        return math.inf
    if c.scale == "ratio":
        return math.sqrt(effect.high / effect.low) - 1 if effect.low > 0 else math.inf
    level = c.baseline_median + max(0.0, effect.estimate)
    return (effect.high - effect.low) / 2 / level if level > 0 else math.inf


@dataclass(frozen=True, slots=True)
class _Rule:
    rule: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form for the plan file."""
        return {"rule": self.rule, **asdict(self)}


@dataclass(frozen=True, slots=True)
class FixedN(_Rule):
    """Stop after n blocks."""

    n: int = 10  # blocks
    alpha: float = 0.05  # family-wise error rate
    rule: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        _require(self.n >= 2 and 0 < self.alpha < 1, f"fixed: n >= 2 and 0 < alpha < 1, got {self.n} and {self.alpha}")

    @property
    def most(self) -> int:
        """Number of blocks that the plan must have."""
        return self.n

    def decide(self, progress: Progress) -> Decision:
        """Stop at n blocks, complete or not."""
        return Decision(progress.run >= self.n, self.alpha, f"{progress.run} of {self.n} blocks run")


@dataclass(frozen=True, slots=True)
class Precision(_Rule):
    """Stop when every primary interval's half-width is below a target."""

    # Relative half-width, 0.03 for 3 %: of the ratio, or of the difference relative to the larger level
    target: float
    n_max: int = 30  # stop here in any case
    n_min: int = 12  # first look; at least the floor of the family
    alpha: float = 0.045  # family-wise error rate of the analysis where it stops
    rule: ClassVar[str] = "precision"

    def __post_init__(self) -> None:
        good = 0 < self.target < math.inf and 2 <= self.n_min <= self.n_max and 0 < self.alpha < 1
        _require(good, f"precision: target > 0 and 2 <= n_min <= n_max, got {self.target}, {self.n_min}, {self.n_max}")

    @property
    def most(self) -> int:
        """Number of blocks that the plan must have."""
        return self.n_max

    def decide(self, progress: Progress) -> Decision:
        """Stop when all intervals are narrow enough: the widest one decides."""
        if progress.run >= self.n_max:
            return Decision(True, self.alpha, f"{progress.run} blocks run, the most that the plan allows")
        if progress.complete < self.n_min or not progress.half_widths:
            return Decision(
                False, self.alpha, f"{progress.complete} complete blocks, the first look is at {self.n_min}"
            )
        name, widest = max(progress.half_widths.items(), key=lambda item: item[1])
        done = widest <= self.target
        return Decision(done, self.alpha, f"widest half-width {widest:.3g} ({name}), target {self.target:.3g}")


@dataclass(frozen=True, slots=True)
class TwoLooks(_Rule):
    """Look at `first` blocks, and again at `second` if anything is still open."""

    # Complete blocks at the looks
    first: int = 10
    second: int = 16
    # Family-wise error rates of the looks; their sum bounds the whole
    alpha_first: float = 0.01
    alpha_second: float = 0.04
    rule: ClassVar[str] = "two-looks"

    def __post_init__(self) -> None:
        good = 2 <= self.first < self.second and self.alpha_first > 0 and self.alpha_second > 0
        good = good and self.alpha_first + self.alpha_second < 1
        _require(good, f"two-looks: 2 <= first < second and positive error rates, got {asdict(self)}")

    @property
    def most(self) -> int:
        """Number of blocks that the plan must have."""
        return self.second

    @property
    def alpha(self) -> float:
        """Error rate of the whole study."""
        return self.alpha_first + self.alpha_second

    def decide(self, progress: Progress) -> Decision:
        """Test at the two looks and never in between; a block that fails its checks moves no look."""
        if progress.run >= self.second:
            return Decision(True, self.alpha_second, f"second look, at {progress.run} blocks")
        if progress.run == self.first:
            open_or_not = "everything is settled" if progress.conclusive else "not everything is settled"
            return Decision(
                progress.conclusive, self.alpha_first, f"first look, at {progress.run} blocks: {open_or_not}"
            )
        following = self.first if progress.run < self.first else self.second
        return Decision(False, self.alpha_first, f"{progress.run} blocks were run; the next look is at {following}")


StoppingRule = FixedN | Precision | TwoLooks
_RULES: dict[str, type[StoppingRule]] = {r.rule: r for r in (FixedN, Precision, TwoLooks)}


def stopping_rule(data: Mapping[str, Any]) -> StoppingRule:
    """Read a rule from its plain form; raise UsageError for an unknown rule, option or value.

    ``{"rule": "fixed", "n": 10}``, ``{"rule": "precision", "target": 0.03, "n_max": 30}`` or ``{"rule": "two-looks"}``.
    """
    options = dict(data)
    name = options.pop("rule", None)
    if name not in _RULES:
        raise UsageError(f"unknown stopping rule {name!r}; use one of {', '.join(_RULES)}")
    return read(_RULES[name], options, "stopping")


def _require(good: bool, message: str) -> None:
    if not good:
        raise UsageError(message)
