"""Inference for randomised, blocked trials: pure functions of arrays.

The opinion. The run is the unit and the block pairs the treatments; requests and slices are never replicates. Tests are
exact, and an interval is the inversion of the test beside it, so that the two never disagree. A family of contrasts
is declared before the first run and corrected together. What was not shown is `inconclusive`, with the blocks that
would settle it: "no difference" is never a verdict, and "equivalent" has its own test against a declared margin.
Callers state their assumptions (paired or not, margin, family); this package chooses the test. Results are frozen and
carry their warnings.

The limits. Randomised order is assumed, not checked: no test mends a sequential one. Differences of the blocks are
taken to be symmetric about their centre. `simulate` and `calibration` measure what both assumptions cost.
"""

from meshtrial.margin import Margin
from meshtrial.stats.calibration import CheckResult, run_all
from meshtrial.stats.comparison import Comparison, Scale, Warning
from meshtrial.stats.contrast import compare_paired, compare_unpaired
from meshtrial.stats.datachecks import coarse_quantile, repeated_values, varying_factors, warm_up
from meshtrial.stats.diagnostics import diagnose, previous_treatments
from meshtrial.stats.family import ContrastResult, Family, analyse_family
from meshtrial.stats.growth import (
    Knee,
    PowerLaw,
    Slope,
    compare_exponents,
    find_knee,
    marginal_cost,
    marginal_costs,
    power_law,
)
from meshtrial.stats.intervals import RankInterval, hodges_lehmann, hodges_lehmann_two
from meshtrial.stats.multiplicity import benjamini_hochberg, holm, smallest_n, smallest_n_unpaired
from meshtrial.stats.noise import NoiseFloor, VarianceComponents, best_slices, noise_floor, variance_components
from meshtrial.stats.power import (
    Budget,
    StudyCost,
    blocks_for_difference,
    blocks_for_equivalence,
    cost_of_margin,
    detectable_effect,
    study_seconds,
)
from meshtrial.stats.ranktests import (
    MannWhitney,
    SignedRank,
    equivalence_p,
    mann_whitney,
    signed_rank,
    smallest_p,
    smallest_p_unpaired,
)
from meshtrial.stats.saturation import Bracket, Capacity, RateSearch, Rung, bracket, capacity
from meshtrial.stats.stopping import (
    Decision,
    FixedN,
    Precision,
    Progress,
    StoppingRule,
    TwoLooks,
    half_width,
    stopping_rule,
)
from meshtrial.stats.verdict import Verdict, decide

__all__ = [
    "Bracket",
    "Budget",
    "Capacity",
    "CheckResult",
    "Comparison",
    "ContrastResult",
    "Decision",
    "Family",
    "FixedN",
    "Knee",
    "MannWhitney",
    "Margin",
    "NoiseFloor",
    "PowerLaw",
    "Precision",
    "Progress",
    "RankInterval",
    "RateSearch",
    "Rung",
    "Scale",
    "SignedRank",
    "Slope",
    "StoppingRule",
    "StudyCost",
    "TwoLooks",
    "VarianceComponents",
    "Verdict",
    "Warning",
    "analyse_family",
    "benjamini_hochberg",
    "best_slices",
    "blocks_for_difference",
    "blocks_for_equivalence",
    "bracket",
    "capacity",
    "coarse_quantile",
    "compare_exponents",
    "compare_paired",
    "compare_unpaired",
    "cost_of_margin",
    "decide",
    "detectable_effect",
    "diagnose",
    "equivalence_p",
    "find_knee",
    "half_width",
    "hodges_lehmann",
    "hodges_lehmann_two",
    "holm",
    "mann_whitney",
    "marginal_cost",
    "marginal_costs",
    "noise_floor",
    "power_law",
    "previous_treatments",
    "repeated_values",
    "run_all",
    "signed_rank",
    "smallest_n",
    "smallest_n_unpaired",
    "smallest_p",
    "smallest_p_unpaired",
    "stopping_rule",
    "study_seconds",
    "variance_components",
    "varying_factors",
    "warm_up",
]
