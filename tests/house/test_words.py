"""One word per thing, as `docs/glossary.md` decides: pages, tutorials, help texts, messages and docstrings."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for path in [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs" / "notebooks").glob("*.py"),
        *(ROOT / "src" / "cmdpkit").rglob("*.py"),
    ]
    if "_build" not in path.parts
)
INSTEAD = {
    r"hand(s|ed|ing)?[ -]over\b": "return, returned policy",
    r"reward lost|bounds? missed\b": "regret, violation",
    r"(policy|policies|plans?|it) lacks?\b": "optimality gap",
    r"(keep|keeps|kept) (its|the|all|every|their) bounds?\b": "meet",
    r"(break|breaks|broke) (its|the|a|all|every|their) bounds?\b": "violate",
    r"bounds? (can be )?exceed(ed)? by this much": "the margin with which all bounds can be met",
    r"exclude each other": "conflict",
    r"(no|any) say in\b": "held-out",
    r"reserved problems": "held-out problems",
    r"(policy|optimum|learner|which) draws\b(?!:| (a|an|the|its|one|many|from|random|heat))": "randomises",
    r"policy that can be promised|promised to (keep|meet)": "certified",
    r"\bfor ever\b|\banew\b|\bmust be told\b": "forever, again, needs",
}


def prose(path):
    """The text of a page without its code, whose names and messages are those of the package."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "x", text)
    return " ".join(text.split())


@pytest.mark.parametrize("older", INSTEAD)
def test_each_thing_has_one_word(older):
    found = [
        f"{path.relative_to(ROOT)}: {text[max(0, match.start() - 30) : match.end() + 20]!r}"
        for path in TEXTS
        for text in [prose(path)]
        for match in re.finditer(older, text)
    ]
    assert not found, "\n".join([f"write {INSTEAD[older]} in place of", *found])


def test_the_words_are_in_the_glossary():
    entries = re.findall(r"^\*\*(.+)\*\*$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    decided = {
        "optimality gap",
        "certificate",
        "randomise",
        "returned policy",
        "shortfall",
        "violation",
        "held-out",
        "regret",
        "policy",
    }
    assert decided <= set(entries)
    assert entries == sorted(entries, key=str.lower)
