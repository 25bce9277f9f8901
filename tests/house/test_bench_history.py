"""Ratios of released versions are kept and compared; the benches themselves are run by `make bench`."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def history(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import _history

    monkeypatch.setattr(_history, "FOLDER", tmp_path)
    yield _history
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


def test_every_pass_of_a_version_is_kept_and_rounded_to_four_digits(history, tmp_path):
    history.save("0.3.0", {"a over b": 2.0})
    history.save("0.3.0", {"a over b": 123.456, "c over d": 0.5})
    assert history.read("0.3.0") == {"a over b": [2.0, 123.5], "c over d": [0.5]}
    assert json.loads((tmp_path / "0.3.0.json").read_text())["version"] == "0.3.0"
    assert history.read("0.2.0") == {}


def test_a_pass_is_shown_next_to_all_versions_in_order(history):
    history.save("0.10.0", {"a over b": 3.0})
    history.save("0.9.0", {"a over b": 2.0})
    history.save("0.9.0", {"a over b": 2.5})
    shown = history.comparison({"a over b": 4.0, "c over d": 1.0}).splitlines()
    assert shown == ["a over b: 4  [0.9.0: 2 to 2.5, 0.10.0: 3]", "c over d: 1  [new]"]


def test_every_version_in_the_changelog_has_its_ratios():
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    for version in {*released, "0.1.0"}:
        kept = json.loads((ROOT / "bench" / "history" / f"{version}.json").read_text(encoding="utf-8"))
        assert kept["version"] == version and kept["source"]
        assert all(values and min(values) > 0 for values in kept["ratios"].values())
