"""What every test may rely on, however the run was started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell that runs something in the background makes it ignore Ctrl-C, and so would every
    process the tests start; those that press Ctrl-C need it heard."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
