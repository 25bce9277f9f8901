"""The ratios of released versions are kept; the benches themselves are run by `make bench`."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_version_in_the_changelog_has_its_ratios():
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    for version in {*released, "0.1.0"}:
        kept = json.loads((ROOT / "bench" / "history" / f"{version}.json").read_text(encoding="utf-8"))
        assert kept["version"] == version and kept["source"]
        assert all(values and min(values) > 0 for values in kept["ratios"].values())
