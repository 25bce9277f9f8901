"""The page whose examples need other programs is left out where one is missing, but not in continuous integration."""

import os
from importlib.util import find_spec

NEEDED = ("quantecon", "stormpy")
complete = "CMDPKIT_NEEDS_ORACLES" in os.environ or all(find_spec(module) for module in NEEDED)
collect_ignore = [] if complete else ["coming-from.md"]
