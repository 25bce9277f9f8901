"""What is said in several places about a release is the same everywhere."""

import re
import tomllib
from pathlib import Path

import cmdpkit

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_names_this_version_and_licence():
    assert re.findall(r"^version: (.+)$", text("CITATION.cff"), re.M) == [cmdpkit.__version__]
    assert re.findall(r"^license: (.+)$", text("CITATION.cff"), re.M) == [PROJECT["project"]["license"]]


def test_continuous_integration_runs_on_the_python_versions_that_are_claimed():
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    [tried] = re.findall(r"^ +python: \[(.+)\]$", text(".github/workflows/test.yml"), re.M)
    assert re.findall(r"3\.\d+", tried) == claimed
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"
