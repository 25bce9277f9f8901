"""What several test files share."""

import math
import os
import signal

import pytest

from browser import Browser, chromium

# A shell starts background commands deaf to Ctrl-C. The tests send it to themselves and to what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    from cmdpkit.model import compiled, showing

    compiled.INTERPRETED_WORK = 0  # the tests are about the compiled form of every function
    os.environ.pop("COLUMNS", None)  # pytest sets it in workers, and what commands print would be as wide
    showing.BETWEEN_LINES = showing.StatusLines.before_note = math.inf  # on a busy machine, any command may be slow
    if hasattr(config, "workerinput"):  # one of several processes
        from compile_once import compile_once

        compile_once()


@pytest.fixture
def short_evaluation(monkeypatch):
    """For tests that do not look at the end of a run without a model: 100 fresh episodes of its policy, not 1,000."""
    monkeypatch.setattr("cmdpkit.running.playing.EVALUATION_EPISODES", 100)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if chromium() is None:
        missing = "no Chromium on this machine (Debian: apt install chromium): the page is not looked at"
        (pytest.fail if os.environ.get("CMDPKIT_NEEDS_CHROMIUM") else pytest.skip)(missing)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
