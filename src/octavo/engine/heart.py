"""What the engine process shows of itself in shared memory, readable even while it is stopped.

The memory is an anonymous file that the child inherits: it has no name and leaves nothing behind.
Only the engine writes. A reader may see one step's numbers mixed with the next one's; nothing here
needs more.
"""

from __future__ import annotations

import os
import sys
import tempfile
from array import array
from collections.abc import Sequence
from enum import IntEnum
from mmap import mmap

_NUM_FIELDS = 8
MAX_MEMBERS = 8184
_SIZE = 8 * (_NUM_FIELDS + MAX_MEMBERS)
_BEATS, _DOING, _TAKEN, _WAITING, _WAITING_TOKENS, _RUNNING, _STEPS, _MEMBERS = range(_NUM_FIELDS)


class Doing(IntEnum):
    """What the engine's thread is at."""

    NOTHING = 0
    TAKING = 1  # a request in
    STEPPING = 2


class Heart:
    """Counters of one engine process. beats: grows with every step and every round of commands.
    taken: requests taken in. members: numbers of the requests it is at."""

    def __init__(self, fd: int) -> None:
        """Of the file behind `fd`, made by `anonymous_file`; the descriptor stays the caller's."""
        self._memory = mmap(fd, _SIZE)
        self._cells = memoryview(self._memory).cast("Q")

    def close(self) -> None:
        """Let go of the memory."""
        self._cells.release()
        self._memory.close()

    @property
    def beats(self) -> int:
        """Steps and rounds of commands finished."""
        return self._cells[_BEATS]

    @property
    def taken(self) -> int:
        """Requests taken in so far."""
        return self._cells[_TAKEN]

    @property
    def num_waiting(self) -> int:
        """Requests in the engine's queue after the last step."""
        return self._cells[_WAITING]

    @property
    def num_waiting_tokens(self) -> int:
        """Their prompt tokens."""
        return self._cells[_WAITING_TOKENS]

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return self._cells[_RUNNING]

    @property
    def num_steps(self) -> int:
        """Steps finished."""
        return self._cells[_STEPS]

    @property
    def doing(self) -> Doing:
        """What the engine is at, or was when it died."""
        return Doing(self._cells[_DOING])

    @property
    def members(self) -> list[int]:
        """Numbers of the requests it was doing that with."""
        count = min(self._cells[_MEMBERS], MAX_MEMBERS)
        return self._cells[_NUM_FIELDS : _NUM_FIELDS + count].tolist()

    def begin(self, doing: Doing, members: Sequence[int]) -> None:
        """The engine turns to these requests; a crash from now on may be their fault."""
        cells, count = self._cells, min(len(members), MAX_MEMBERS)
        cells[_NUM_FIELDS : _NUM_FIELDS + count] = array("Q", members[:count])
        cells[_MEMBERS] = count
        cells[_DOING] = doing

    def rest(self) -> None:
        """It has come through."""
        self._cells[_DOING] = Doing.NOTHING

    def beat(
        self, num_waiting: int, num_waiting_tokens: int, num_running: int, steps: int, taken: int
    ) -> None:
        """A step or a round of commands is done. taken comes last: a request is rather seen twice
        than not at all."""
        cells = self._cells
        cells[_WAITING] = num_waiting
        cells[_WAITING_TOKENS] = num_waiting_tokens
        cells[_RUNNING] = num_running
        cells[_STEPS] = steps
        cells[_TAKEN] = taken
        cells[_BEATS] += 1


def anonymous_file() -> int:
    """A file descriptor of zeros for a Heart, inheritable, in memory where the system can."""
    if sys.platform == "linux":
        fd = os.memfd_create("octavo-heart", 0)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE)
    os.set_inheritable(fd, True)
    return fd
