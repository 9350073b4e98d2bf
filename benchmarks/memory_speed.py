"""How fast memory is read: not the caches, whatever their size."""

from __future__ import annotations

from pathlib import Path

from octavo import _native
from octavo.machine import memory

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LEAST, MOST = 256 << 20, 2 << 30
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_level_bytes(caches: Path = CACHES) -> int:
    """Of the largest cache that the system tells of; 0 where it tells of none."""
    sizes = [path.read_text().strip() for path in caches.glob("index*/size")]
    return max((int(size[:-1]) * UNITS[size[-1]] for size in sizes), default=0)


def read_bytes() -> int:
    """As many as leave little in the last-level cache until they are read again: four times its
    size, between 256 MB and 2 GB, and no more than a quarter of the memory that is free."""
    most = min(MOST, memory().available // 4)
    return max(LEAST, min(most, 4 * last_level_bytes()))


def read_speed(threads: int, huge_pages: bool = True) -> float:
    """Bytes a second, the best of many pieces of some milliseconds."""
    return _native.measure_read_speed(read_bytes(), threads, huge_pages)
