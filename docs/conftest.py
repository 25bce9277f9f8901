"""Pages whose examples need a program that may be missing are left out then, but not in continuous integration."""

import os
from importlib.util import find_spec

NEEDED = {"quantecon.md": "quantecon", "storm.md": "stormpy"}
there = "CMDPKIT_NEEDS_ORACLES" in os.environ
collect_ignore = [f"coming-from/{page}" for page, module in NEEDED.items() if not there and find_spec(module) is None]
