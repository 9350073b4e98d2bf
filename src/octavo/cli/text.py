"""Numbers for people, the same in every command."""

from __future__ import annotations


def size(num_bytes: int) -> str:
    """Bytes in decimal units: "98.4 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} B"
