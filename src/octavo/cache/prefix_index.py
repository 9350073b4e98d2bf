"""Which block already holds the KV of a given run of tokens.

A full block is known by a key chained over everything before it: key = H(parent key, token ids).
The root of the chain is H(salt, adapter), so tenants with different salts never share, and neither
do adapters, which compute other keys and values. Where generated tokens do so too, a block that
holds some has the number of those of the prompt in its key. H is BLAKE2b with a 128-bit digest and
a key drawn once per process: no client can construct two prefixes that collide.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from hashlib import blake2b

_PROCESS_KEY = os.urandom(16)
_KEY_BYTES = 16


def root_key(salt: str, adapter: int = -1) -> bytes:
    """The parent key of a sequence's first block. adapter: its number, -1 for none."""
    data = adapter.to_bytes(8, "little", signed=True) + salt.encode()
    return blake2b(data, digest_size=_KEY_BYTES, key=_PROCESS_KEY).digest()


def block_key(parent: bytes, ids: Sequence[int], num_prompt: int | None = None) -> bytes:
    """The key of a full block with these token ids, after the block (or root) `parent`. num_prompt:
    how many of them are of the prompt, where that makes a difference."""
    data = parent + array("i", ids).tobytes()
    if num_prompt is not None and num_prompt < len(ids):
        data += num_prompt.to_bytes(4, "little")
    return blake2b(data, digest_size=_KEY_BYTES, key=_PROCESS_KEY).digest()


class PrefixIndex:
    """A one-to-one map between keys and blocks. The pool removes an entry when it evicts."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def __contains__(self, block: int) -> bool:
        return block in self._key_of

    def find(self, key: bytes) -> int | None:
        """The block stored under `key`, or None."""
        return self._block_of.get(key)

    def add(self, key: bytes, block: int) -> bool:
        """Enter a block; False (and nothing happens) if its key or the block is there already."""
        if key in self._block_of or block in self._key_of:
            return False
        self._block_of[key] = block
        self._key_of[block] = key
        return True

    def remove(self, block: int) -> None:
        """Forget a block; it must be in the index."""
        del self._block_of[self._key_of.pop(block)]

    def clear(self) -> None:
        """Forget everything."""
        self._block_of.clear()
        self._key_of.clear()

    def check(self) -> None:
        """Raise AssertionError unless the two maps are inverse (for tests)."""
        assert {b: k for k, b in self._block_of.items()} == self._key_of
