"""Other names for what `cmdpkit.estimate.extended` has."""

from cmdpkit.estimate.extended import Optimistic as Optimistic
from cmdpkit.estimate.extended import extended_induction as extended_induction
from cmdpkit.estimate.extended import extended_value_iteration as extended_value_iteration
from cmdpkit.estimate.extended import fill_row as fill_row
from cmdpkit.estimate.extended import row_value as row_value
from cmdpkit.estimate.extended import sort_descending as sort_descending
