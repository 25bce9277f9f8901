"""Other names for what `cmdpkit.estimate.boxes` has."""

from cmdpkit.estimate.boxes import Belief as Belief
from cmdpkit.estimate.boxes import forget as forget
from cmdpkit.estimate.boxes import new_belief as new_belief
from cmdpkit.estimate.boxes import refresh as refresh
