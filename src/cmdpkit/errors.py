"""The errors that cmdpkit raises on purpose, and how they show names and values.

Every error that the user can fix is a `CmdpkitError`: a bad model, a bad file, an unknown name, a missing extra. Its
message names the thing, its place, its value, the rule and what to do next. Any other exception is a defect of this
package, and its traceback is shown.

Names and values come from files and from callers, so they may hold anything: line breaks, terminal commands, characters
that reverse the reading direction, or a hundred thousand letters. `quoted`, `shown` and `markdown_escaped` make
them safe to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

INTERRUPTED = 130  # exit code of a command that Ctrl-C has ended
MAX_SHOWN = 60  # characters of a name or value that a message or a table shows


IN_SHELL = ContextVar("in_shell", default=False)  # whether the reader works with commands, and not with Python


def remedy(python: str, shell: str) -> str:
    """What to do next, as the reader can do it: a call in Python, an option on the command line.

    >>> remedy("diagnosis.separation", "--json")
    'diagnosis.separation'
    """
    return shell if IN_SHELL.get() else python


class CmdpkitError(ValueError):
    """An error that the user can fix; the message names what is wrong, where, and the next step."""

    __module__ = "cmdpkit"  # where users find it, and what a traceback calls it
    exit_code = 1  # of the command that ends with this error

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class InputWarning(UserWarning):
    """Something in the input was ambiguous or irregular; the message explains how it was understood."""

    __module__ = "cmdpkit"


class RoundingWarning(InputWarning):
    """Probabilities in the input were rounded and had to be corrected; the message has the largest correction."""

    __module__ = "cmdpkit"


def printable(text: str) -> str:
    r"""The text with every character that is not printable written as an escape; line breaks stay.

    >>> printable("red \x1b[31m, right to left \u202e, next\nline")
    'red \\x1b[31m, right to left \\u202e, next\nline'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def shown(name: object) -> str:
    r"""A name as it is shown to people: on one line, printable, and with the middle left out if it is long.

    >>> shown("two\nlines")
    'two\\nlines'
    >>> shown("a" * 100_000)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaa'
    """
    return _short(printable(_text_of(str, name)).replace("\n", "\\n"))


def quoted(value: object, most: int = MAX_SHOWN) -> str:
    """A value as Python writes it, made safe as by `shown` and cut to so many characters, for messages.

    >>> print(quoted("busy"), quoted([1, 2]))
    'busy' [1, 2]
    """
    return _short(printable(_text_of(repr, value)).replace("\n", " "), most)


def _text_of(write: Any, value: object) -> str:
    """str(value) or repr(value); its type if that fails, as it may for a user's class or a number of 5,000 digits."""
    try:
        return str(write(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _short(text: str, most: int = MAX_SHOWN) -> str:
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


class RunFailed(CmdpkitError):
    """A run was ended by something outside of this package: an environment raised, or returned what it must not.

    The message names episode, step and what came back; an exception of the environment is its ``__cause__``.
    """

    __module__ = "cmdpkit"


def markdown_escaped(name: object) -> str:
    r"""A name on one line, with the middle left out if it is long, and with all Markdown characters escaped.

    >>> print(markdown_escaped("a|b\n<i>"))
    a\|b \<i\>
    """
    return markdown_literal(shown(" ".join(str(name).split())))


def markdown_literal(text: str) -> str:
    """A text of any length on one line, with all Markdown characters escaped."""
    return re.sub(r"([\\`*_<>\[\]|&~])", r"\\\1", printable(text).replace("\n", "\\n"))


def markdown_line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"
