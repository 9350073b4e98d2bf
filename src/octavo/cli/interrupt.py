"""Ctrl-C as a question the loop asks between steps, so that no step is torn in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct


class Interrupt(Struct):
    """`raised` becomes True at the first Ctrl-C; a second one raises KeyboardInterrupt."""

    raised: bool = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        if self.raised:
            raise KeyboardInterrupt
        self.raised = True


@contextmanager
def deferred_interrupts() -> Iterator[Interrupt]:
    """Within the block Ctrl-C only sets a flag. Main thread only."""
    interrupt = Interrupt()
    previous = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
