"""How much memory the benchmarks read to learn its speed."""

from pathlib import Path

import pytest
from benchmarks import memory_speed

from octavo.machine import Memory


def caches(folder: Path, *sizes: str) -> Path:
    for i, size in enumerate(sizes):
        (folder / f"index{i}").mkdir()
        (folder / f"index{i}" / "size").write_text(size + "\n")
    return folder


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((), 0), (("48K", "2048K", "491520K"), 480 << 20), (("32K", "1M"), 1 << 20)],
)
def test_the_last_cache_is_the_largest(
    tmp_path: Path, sizes: tuple[str, ...], expected: int
) -> None:
    assert memory_speed.last_level_bytes(caches(tmp_path, *sizes)) == expected


@pytest.mark.parametrize(
    ("cache", "available", "expected"),
    [
        (8 << 20, 64 << 30, 256 << 20),  # small caches
        (480 << 20, 64 << 30, 1920 << 20),
        (1 << 30, 64 << 30, 2 << 30),  # at most
        (480 << 20, 4 << 30, 1 << 30),  # as memory allows
        (480 << 20, 100 << 20, 256 << 20),
    ],
)
def test_so_many_bytes_are_read(
    monkeypatch: pytest.MonkeyPatch, cache: int, available: int, expected: int
) -> None:
    monkeypatch.setattr(memory_speed, "last_level_bytes", lambda: cache)
    monkeypatch.setattr(memory_speed, "memory", lambda: Memory(available, available, "test"))
    assert memory_speed.read_bytes() == expected
