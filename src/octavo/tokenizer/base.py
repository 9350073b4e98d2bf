"""Tokenizer: text to ids and back, whatever the file it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from octavo.tokenizer.pieces import PieceBytes, PieceStyle
from octavo.tokenizer.special import SpecialTokens
from octavo.tokenizer.template import ChatTemplates

MAX_TABLES = 16  # of token texts, kept for choices of special tokens that are shown


class Encoder(Protocol):
    """Turns text into ids; adds nothing before or after. Safe to call from several threads."""

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Ids of `text`, which is valid Unicode without lone surrogates.

        parse_special: whether the text of a control token becomes that token.
        """
        ...


class Tokenizer:
    """Immutable after construction; safe to share between threads.

    pieces: the vocabulary as the file writes it, by id. literal_ids: pieces written as plain text.
    byte_ids: pieces that are one raw byte. strip_space: a whole text loses one leading space, which
    the encoder had put there.
    """

    def __init__(
        self,
        *,
        pieces: Sequence[str],
        style: PieceStyle,
        encoder: Encoder,
        special: SpecialTokens,
        templates: Mapping[str, str],
        literal_ids: frozenset[int] = frozenset(),
        byte_ids: frozenset[int] = frozenset(),
        strip_space: bool = False,
    ) -> None:
        self._encoder, self.special, self.strip_space = encoder, special, strip_space
        self.vocab_size = len(pieces)
        self._table = partial(PieceBytes, pieces, style, literal=literal_ids, byte_ids=byte_ids)
        self._bytes, self._shown_bytes = self._table(), self._table(skipped=special.hidden_ids)
        self._templates = ChatTemplates(templates, special.named)
        self._partly_shown: dict[frozenset[int], PieceBytes] = {}

    @property
    def bos_token_id(self) -> int | None:
        """Id of the token that begins a text, or None."""
        return self.special.bos_id

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, the model's main one first; may be empty."""
        return self.special.eos_ids

    @property
    def add_bos(self) -> bool:
        """Whether `encode` begins a text with the bos token."""
        return self.special.bos_id in self.special.prefix_ids

    @property
    def chat_template(self) -> str | None:
        """The model's default chat template, or None."""
        return self._templates.default

    def template_source(self, with_tools: bool) -> str | None:
        """The template that is used with (or without) tools, or None."""
        return self._templates.source(with_tools)

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Ids of `text`. Lone surrogates count as U+FFFD.

        add_special_tokens: put the model's begin (and end) tokens round it; leave it off for a
        rendered chat, whose template writes them. parse_special: the text of a control token means
        that token; switch it off for text from strangers.
        """
        ids = self._encoder.encode(_without_surrogates(text), parse_special)
        if not add_special_tokens:
            return ids
        return [*self.special.prefix_ids, *ids, *self.special.suffix_ids]

    def cut(self, ids: list[int], limit: int) -> list[int]:
        """The first `limit` ids of a text; the model's end tokens stay where they are there."""
        suffix = list(self.special.suffix_ids)
        if len(ids) <= limit or not suffix or ids[-len(suffix) :] != suffix or limit <= len(suffix):
            return ids[:limit]
        return ids[: limit - len(suffix)] + suffix

    def encode_pair(
        self,
        first: str,
        second: str,
        limit: int | None = None,
        second_limit: int | None = None,
    ) -> tuple[list[int], int]:
        """Ids of two texts as an encoder reads them together, and where the second begins.

        limit: at most so many ids; what is too long is cut off the second text, then off the first.
        second_limit: ids of the second text at most.
        """
        special = self.special
        middle = special.between_ids
        a, b = (
            self.encode(text, add_special_tokens=False, parse_special=False)
            for text in (first, second)
        )
        b = b[:second_limit]
        if limit is not None:
            room = limit - len(special.prefix_ids) - len(middle) - len(special.suffix_ids)
            a = a[: max(0, room)]
            b = b[: max(0, room - len(a))]
        head = [*special.prefix_ids, *a, *middle]
        return [*head, *b, *special.suffix_ids], len(head)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD. Unknown ids are empty."""
        table = self.piece_bytes(skip_special_tokens)
        text = b"".join(map(table.__getitem__, ids)).decode("utf-8", "replace")
        return text[1:] if self.strip_space and text.startswith(" ") else text

    def piece_bytes(
        self, skip_special_tokens: bool, shown: frozenset[int] = frozenset()
    ) -> Mapping[int, bytes]:
        """Id -> bytes for every int; with skip_special_tokens special tokens are empty, but those
        in `shown`."""
        if not skip_special_tokens:
            return self._bytes
        shown &= self.special.hidden_ids
        if not shown:
            return self._shown_bytes
        if shown not in self._partly_shown:
            if len(self._partly_shown) >= MAX_TABLES:
                self._partly_shown.clear()
            skipped = self.special.hidden_ids - shown
            self._partly_shown[shown] = self._table(skipped=skipped)
        return self._partly_shown[shown]

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes one token stands for, special tokens as written; empty outside the vocabulary."""
        return self._bytes[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether the token is left out of shown text."""
        return token_id in self.special.hidden_ids

    def prepare_chat(self) -> None:
        """Get ready to render chats, so that the first one does not pay for it."""
        self._templates.prepare()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt text of a conversation, as `transformers` would render it.

        tools: function descriptions in OpenAI's shape. chat_template: used instead of the model's,
        either Jinja source or the name of one of the model's templates. kwargs go to the template
        (`enable_thinking=False`). Raises TemplateError if the template refuses or fails, or there
        is none.
        """
        return self._templates.render(
            chat_template,
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **kwargs,
        )


def _without_surrogates(text: str) -> str:
    """`text` with lone surrogates replaced and surrogate pairs joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
