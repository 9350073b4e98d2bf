"""What a vocabulary entry stands for: bytes. One rule per way of writing pieces down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

PieceStyle = Literal["byte_level", "spm", "hf_wordpiece"]
"""byte_level: GPT-2's alphabet of one printable character a byte.
spm: U+2581 for a space, "<0xAB>" for a byte (GGUF writes WordPiece this way too).
hf_wordpiece: "##" continues a word."""

SPACE_MARK = "\u2581"


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's map from printable characters to bytes: printable Latin-1 stands for itself, the
    others follow from U+0100 on, in order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted({*range(256)}.difference(plain))
    alphabet = {chr(byte): byte for byte in plain}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_alphabet()
_TO_LATIN1 = str.maketrans({char: chr(byte) for char, byte in BYTE_OF_CHAR.items()})


def byte_level_bytes(piece: str) -> bytes:
    """Bytes of a GPT-2 style piece; a piece outside the alphabet is taken as it is written."""
    if all(char in BYTE_OF_CHAR for char in piece):
        return piece.translate(_TO_LATIN1).encode("latin-1")
    return text_bytes(piece)


def text_bytes(piece: str) -> bytes:
    """Bytes of a piece that is written as plain text (special and user-defined tokens)."""
    return piece.encode("utf-8", "replace")


def spm_bytes(piece: str) -> bytes:
    """Bytes of a SentencePiece piece."""
    return text_bytes(piece.replace(SPACE_MARK, " "))


def hf_wordpiece_bytes(piece: str) -> bytes:
    """Bytes of a WordPiece piece: a space before every word."""
    return text_bytes(piece[2:] if piece.startswith("##") else " " + piece)


def spm_byte_value(piece: str) -> int | None:
    """The byte that "<0xAB>" stands for, or None for any other piece."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return int(piece[3:5], 16)
        except ValueError:
            return None
    return None


_RULES: dict[PieceStyle, Callable[[str], bytes]] = {
    "byte_level": byte_level_bytes,
    "spm": spm_bytes,
    "hf_wordpiece": hf_wordpiece_bytes,
}


class PieceBytes(dict[int, bytes]):
    """Token id -> bytes, worked out on first use: `table[id]` never fails.

    literal: ids written as plain text. skipped: ids that stand for nothing (special tokens when
    they are not shown). byte_values: ids that are one raw byte. Ids outside the vocabulary (a model
    may have padding rows) are empty.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        style: PieceStyle,
        *,
        literal: frozenset[int],
        byte_ids: frozenset[int],
        skipped: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__()
        self._pieces, self._rule = pieces, _RULES[style]
        self._literal, self._byte_ids, self._skipped = literal, byte_ids, skipped

    def __missing__(self, token_id: int) -> bytes:
        value = self[token_id] = self._work_out(token_id)
        return value

    def _work_out(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._pieces) or token_id in self._skipped:
            return b""
        piece = self._pieces[token_id]
        if token_id in self._byte_ids and (byte := spm_byte_value(piece)) is not None:
            return bytes([byte])
        return text_bytes(piece) if token_id in self._literal else self._rule(piece)
