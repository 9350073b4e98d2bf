"""Tokens that are more than text: begin, end and control tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field


class SpecialTokens(Struct, frozen=True):
    """Ids with a role. A role without a token is None.

    eos_ids: every id that ends an answer, the main one first. prefix_ids, suffix_ids: put round
    every prompt. middle_ids: put between two texts that are read as one; None where the file does
    not say: suffix_ids. hidden_ids: left out of shown text when special tokens are skipped. named:
    role name -> text, as chat templates want them ("bos_token", "eos_token", "pad_token",
    "unk_token").
    """

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    middle_ids: tuple[int, ...] | None = None
    hidden_ids: frozenset[int] = frozenset()
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def between_ids(self) -> tuple[int, ...]:
        """What is put between two texts that are read as one."""
        return self.suffix_ids if self.middle_ids is None else self.middle_ids


END_PIECES = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
)
"""Texts of tokens that end an answer. Files often name only one of them as their eos token."""


def end_ids(declared: Sequence[int], id_of: Mapping[str, int]) -> tuple[int, ...]:
    """All ids that end an answer: the declared ones, then those known by their text.

    gpt-oss's "<|end|>" closes a channel, not the answer: there it is no end token.
    """
    found = {id_of[piece]: piece for piece in END_PIECES if piece in id_of}
    if {"<|return|>", "<|call|>"} <= set(found.values()):
        found = {token: piece for token, piece in found.items() if piece != "<|end|>"}
    return tuple(dict.fromkeys([*declared, *found]))
