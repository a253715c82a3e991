"""Inference for randomised, blocked trials: pure functions of arrays.

The opinion. The run is the unit and the block pairs the treatments; requests and slices are never replicates. Tests are
exact, and an interval is the inversion of its test, so that the two never disagree. A family of contrasts is declared
before the first run and corrected together. What was not shown is `inconclusive`, with the blocks that would settle it:
"no difference" is never a verdict, and "equivalent" has its own test against a declared margin. Callers state their
assumptions (paired or not, margin, family), and this package chooses the test. Results are frozen and carry warnings.

The limits. Randomised order is assumed, not checked: no test corrects a sequential one. Block differences are assumed
to be symmetric about their centre. `simulate` and `calibration` measure what both assumptions cost.
"""

from meshtrial.margin import Margin
from meshtrial.stats.calibration import CheckResult, run_all
from meshtrial.stats.contrast import Comparison, compare_paired
from meshtrial.stats.diagnostics import (
    FEWEST_BLOCKS,
    FEWEST_VALUES,
    Drift,
    coarse_quantile,
    diagnose,
    drift_of,
    repeated_values,
    varying_factors,
    warm_up,
)
from meshtrial.stats.family import ContrastResult, Family, analyse_family
from meshtrial.stats.intervals import RankInterval, hodges_lehmann, next_session
from meshtrial.stats.levels import LevelChange, fewest_for_change, level_changes
from meshtrial.stats.multiplicity import smallest_n, smallest_n_unpaired
from meshtrial.stats.power import (
    Nights,
    VarianceComponents,
    best_slices,
    blocks_for_difference,
    blocks_for_equivalence,
    detectable_effect,
    upper_sd,
    variance_components,
)
from meshtrial.stats.ranktests import smallest_p, smallest_p_unpaired
from meshtrial.stats.saturation import Capacity, LoadStep, RateSearch, bracket, capacity
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
from meshtrial.vocabulary import Scale, Warning
