"""What every test may rely on, however the run was started."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)


def pytest_configure() -> None:
    """A shell that runs something in the background makes it ignore Ctrl-C, and so would every
    process the tests start; those that press Ctrl-C need it heard.

    Property tests draw the same examples in every run, so that a change is judged by itself;
    OCTAVO_TEST_EXPLORE=1 looks for new ones.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.environ.get("OCTAVO_TEST_EXPLORE"):
        settings.load_profile("repeatable")
