"""How the contract tests say what is wrong."""

from __future__ import annotations

from collections.abc import Iterable


class ContractBroken(AssertionError):
    """A learner or an environment does not keep a promise; the message says in sentences what it does instead."""

    __module__ = "cmdpkit.testing"


def expect(holds: bool, sentence: str) -> None:
    """Raise `ContractBroken` with this sentence unless the promise holds."""
    if not holds:
        raise ContractBroken(sentence)


def report(name: str, what: str, sentences: Iterable[str]) -> None:
    """Raise one `ContractBroken` for all the sentences that were collected; do nothing if there are none."""
    listed = "\n".join(f"- {sentence}" for sentence in dict.fromkeys(sentences))
    expect(not listed, f"{name} breaks the contract of {what}:\n{listed}")
