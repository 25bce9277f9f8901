"""What several test files share."""

from __future__ import annotations

import os

import pytest

from browser import Browser, chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if chromium() is None:
        missing = "no Chromium on this machine (Debian: apt install chromium): the page is not looked at"
        (pytest.fail if os.environ.get("CMDPKIT_NEEDS_CHROMIUM") else pytest.skip)(missing)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
