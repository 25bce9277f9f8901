"""Every tolerance that separates rounding from meaning, with the sentence that it decides; no settings of a search."""

from typing import Final

# -- Probabilities and totals -----------------------------------------------------------------------------------------

ROW_SUM_TOLERANCE: Final = 1e-9  # A row of probabilities may miss 1 by this much, as sums of floats do.
NEGLIGIBLE: Final = 1e-12  # Smaller occupancies and probabilities are due to rounding.
SMALLEST_OCCUPANCY: Final = 1e-300  # Smaller occupancies are taken as zero, because their quotients would lose digits.
USED_UP: Final = 1e-12  # Share of an action's occupancy that rounding leaves over when the action is used up.
LEAST_PROBABILITY: Final = 1e-26  # No action falls below this in multiplicative updates, which cannot leave 0.
SMALLEST_WEIGHT: Final = 1e-13  # A part of a mixture with a smaller weight is not divided further.
TOTALS_AGREE: Final = 1e-11  # Totals that differ by this share of the parts' range agree: weights were rounded.
ROUNDOFF: Final = 2.0**-53  # Relative error of one floating-point operation.
SUM_ORDER: Final = 1e-9  # Sums of floats may differ by this much if they are added up in another order.
ON_GRID: Final = 1e-9  # Units by which a signal may miss a multiple of its unit.

# -- Bounds and ranges ------------------------------------------------------------------------------------------------

FEASIBLE: Final = 1e-10  # Shortfall of a utility that still counts as meeting its bound, in scaled totals.
BOUND_MET: Final = 1e-9  # A bound violated by this share of the larger of its size and 1 counts as met.
OUT_OF_RANGE: Final = 1e-9  # A signal may leave its range by this share of its width, and is moved to its end.
UTILITY_EXCESS: Final = 1e-9  # A computed utility may exceed the largest possible one, H, by this much.
NO_SHORTFALL: Final = 1e-12  # Shortfalls per episode up to this are rounding.
REPAID: Final = 1e-5  # A whole run shall exceed a bound by this much, so that rounding does not take it below.
SHOWN_AS_ZERO: Final = 1e-12  # A best total that is smaller than this share of its bound is shown as 0.
DRAWN_INSIDE: Final = 1e-9  # A bound this share of a drawing's width outside is drawn inside.
NO_SEPARATION: Final = 1e-9  # A sigma below this share of the larger of the value and 1 is rounding.
NO_GAIN: Final = 1e-5  # An action that can gain less than this per visit is as good as those of the plan.
SUPPORT: Final = 1e-9  # An action with a larger probability belongs to the optimum.

# -- Linear programs and chains ---------------------------------------------------------------------------------------

PRICED: Final = 1e-8  # Relative value iteration over a box ends at this span, in units of the sum of the weights.
LP_TOLERANCE: Final = 1e-9  # Tolerance of a linear program.
TIE_FEE: Final = 1e-7  # What an action must gain to come into use even if nothing is uncertain.
WHOLE_PLAYS: Final = 1e-9  # A number of plays that is below a whole number by less than this is that number.
MAX_UNEXPLAINED_GAP: Final = 1e-10  # A larger gap that no new column explains is solved in exact arithmetic.
REFINED: Final = 1e-15  # A residual, relative to the terms it consists of, at which only rounding is left.
USABLE: Final = 1e-11  # The largest such residual that counts as a solution.
SETTLED: Final = 1e-15  # Relative change of a sweep that counts as none.
NEARLY_SETTLED: Final = 1e-13  # A relative change up to this is rounding once it no longer shrinks.

# -- Counts and intervals ---------------------------------------------------------------------------------------------

EQUAL_SUMS: Final = 1e-9  # Sums of equal numbers may differ by this much.
NOTHING_MISSING: Final = 1e-14  # A row whose smallest probabilities sum to 1 up to this has nothing to give out.
CAPITAL_ERROR: Final = 1e-14  # Relative error of a capital per bet, at most.
SMALLEST_CAPITAL: Final = 1e-250  # A smaller capital loses digits.
LGAMMA_ERROR: Final = 2e-15  # Relative error of three values of lgamma and two logarithms together, generously.
NO_FLOW: Final = 1e-12  # A smaller flow is rounding.
SMALLEST_ERROR: Final = 1e-300  # Takes the place of a standard error of 0, or of a share of 0, in a quotient.
LARGEST_ERROR: Final = 1e300  # Takes the place of an infinite standard error in a quotient.
NO_SPREAD: Final = 1e-12  # Variances, standard errors and gains below this are rounding.
SAME_REWARD: Final = 1e-12  # Mean rewards that differ by less are the same.
STIRLING_ERROR: Final = 1e-11  # Error of three values of Stirling's series from 16 on, each below 2e-12, generously.
MOST_FREEDOM: Final = 1e9  # Student's t with more degrees of freedom is the normal distribution.
CLEAR_OF_ROUNDING: Final = 1e-9  # Share of H by which a proved utility exceeds its bound, so that no rounding decides.
