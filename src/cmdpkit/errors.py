"""The errors that cmdpkit raises on purpose.

Whatever a user can mend is a `CmdpkitError`: a bad model, a bad file, an unknown name, a missing extra. Its message
names the thing, its place, its value, the rule and what to do next. Any other exception is a defect of this package and
is shown where it happened.
"""

from __future__ import annotations

INTERRUPTED = 130  # exit code of a command that Ctrl-C has ended


class CmdpkitError(ValueError):
    """Something that the user can mend; the message says what, where and how."""

    __module__ = "cmdpkit"  # where users find it, and what a traceback calls it
    exit_code = 1  # of the command that ends with this error


class RunFailed(CmdpkitError):
    """A run that something outside of this package ended: an environment that raised, or returned what it must not.

    The message names episode, step and what came back; an exception of the environment is its ``__cause__``.
    """

    __module__ = "cmdpkit"
