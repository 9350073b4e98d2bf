"""Tells a hung engine from a busy one. Pure: it is shown counters and a clock."""

from __future__ import annotations

from pathlib import Path

PATIENCE = 5  # times longer for a process that computes than for one that does nothing
_COMPUTING_S = 0.1  # of CPU time since the last step: it is at least not stopped


class StallWatch:
    """Shown the state of an engine again and again, knows for how long it has made no progress.

    A process that neither finishes a step nor uses the CPU (stopped, or waiting for itself) is hung
    after `limit_s`. One that computes may be in a step that takes its time, and is given PATIENCE
    times as long.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._beats = -1
        self._since = 0.0
        self._cpu_since = 0.0
        self._cpu_s = 0.0
        self._busy = False

    def look(self, now: float, busy: bool, beats: int, cpu_s: float | None) -> bool:
        """True if the engine is hung. busy: it has something to do. cpu_s: CPU time it has used;
        None if that cannot be known."""
        if not (busy and self._busy and beats == self._beats):
            self._busy, self._beats = busy, beats
            self._since = self._cpu_since = now
            self._cpu_s = cpu_s or 0.0
            return False
        if cpu_s is None or cpu_s - self._cpu_s >= _COMPUTING_S:
            self._cpu_s, self._cpu_since = cpu_s or 0.0, now
        still_s = now - self._cpu_since
        return still_s >= self._limit_s or now - self._since >= PATIENCE * self._limit_s

    def stalled_s(self, now: float) -> float:
        """Seconds without progress while there was something to do."""
        return max(0.0, now - self._since) if self._busy else 0.0


def cpu_time_s(pid: int) -> float | None:
    """CPU time of all threads of a process; None if the system does not say."""
    import os

    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
    except (OSError, ValueError):
        return None
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
