"""Other names for what `cmdpkit.estimate.boxes` has."""

from cmdpkit.estimate.boxes import Means as Means
from cmdpkit.estimate.boxes import means_of as means_of
from cmdpkit.estimate.boxes import update_means as update_means
