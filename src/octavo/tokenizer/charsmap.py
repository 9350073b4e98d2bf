"""SentencePiece's precompiled normalization: a double-array trie from texts to their replacements.

Layout: uint32 bytes of the trie, the trie as uint32 units, then the replacements, UTF-8, each
ended by a zero byte. A unit holds a label (bits 0-7, and bit 31: no label), whether a replacement
hangs on it (bit 8), and where its children are (bits 10-30, times 256 if bit 9 is set), xor its own
place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError


def check_charsmap(charsmap: bytes, name: str) -> bytes:
    """The charsmap, if no text can lead outside of it: the library that follows it would panic.

    name: of the field, for the message. Raises FormatError.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if len(charsmap) < 4 or size == 0 or size % 4 != 0 or size > len(charsmap) - 4:
        raise FormatError(
            f"{name}: its trie claims {size} of {len(charsmap)} bytes; expected units that fit"
        )
    units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
    _check_trie(units, np.frombuffer(charsmap, np.uint8, offset=4 + size), name)
    try:
        charsmap[4 + size :].decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: its replacements are not UTF-8: {error}") from None
    return charsmap


def _check_trie(units: NDArray[np.int64], texts: NDArray[np.uint8], name: str) -> None:
    """Every child is a unit (256 are looked at), every replacement the beginning of a character."""
    followed = units >> 31 == 0
    base = np.arange(len(units)) ^ (units >> 10 << ((units & 512) >> 6))
    if (base[followed] | 255).max(initial=0) >= len(units):
        raise FormatError(f"{name}: a unit of its trie has children outside of the {len(units)}")
    values = units[base[followed & (units >> 8 & 1 == 1)]] & 0x7FFFFFFF
    if values.max(initial=0) >= max(len(texts), 1):
        raise FormatError(f"{name}: a replacement begins behind the {len(texts)} bytes there are")
    if values.size and (texts[values] & 0xC0 == 0x80).any():
        raise FormatError(f"{name}: a replacement begins within a character")
