"""WordPiece and unigram encoders for GGUF vocabularies, on the `tokenizers` library."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.models import Model, Unigram, WordPiece

from octavo.errors import FormatError, OctavoError
from octavo.tokenizer.pieces import SPACE_MARK
from octavo.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)


@contextmanager
def library_errors(where: str) -> Iterator[None]:
    """Raises FormatError for whatever the library raises. where: the file, or a name for it."""
    try:
        yield
    except (OctavoError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of its Rust code is not even an Exception
        raise FormatError(f"{where}: the tokenizer fails: {error}") from error


class LibraryEncoder:
    """Two library tokenizers that share one model: one knows the control tokens, one does not.
    User-defined tokens are known to both."""

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        *,
        normalizer: normalizers.Normalizer | None = None,
        pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    ) -> None:
        user = [AddedToken(text, normalized=False) for text in vocabulary.texts(USER_DEFINED)]
        control = vocabulary.texts(CONTROL, UNKNOWN)
        both = user + [AddedToken(text, normalized=False) for text in control]
        self._plain = _library(model, normalizer, pre_tokenizer, user)
        self._special = _library(model, normalizer, pre_tokenizer, both)
        self._own_ids = self._ids_of_hidden(control, vocabulary)

    def _ids_of_hidden(self, texts: list[str], vocabulary: Vocabulary) -> dict[int, int]:
        """Ids that the library made up for control tokens which its model does not know by their
        text -> their own."""
        known = {vocabulary.pieces[token]: token for token in vocabulary.ids_of(CONTROL, UNKNOWN)}
        made_up = {text: self._special.token_to_id(text) for text in texts}
        return {i: known[text] for text, i in made_up.items() if i not in (None, known[text])}

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """See `Encoder.encode`."""
        library = self._special if parse_special else self._plain
        with library_errors("tokenizer of the file"):
            ids: list[int] = library.encode(text, add_special_tokens=False).ids
        return [self._own_ids.get(token, token) for token in ids] if self._own_ids else ids


def _library(
    model: Model,
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    added: list[AddedToken],
) -> Library:
    library = Library(model)
    if normalizer is not None:
        library.normalizer = normalizer
    if pre_tokenizer is not None:
        library.pre_tokenizer = pre_tokenizer
    library.add_tokens(added)
    return library


def wordpiece_spelling(vocabulary: Vocabulary) -> Sequence[str]:
    """The pieces as the library wants them, "##" on all that go on in a word.

    In GGUF U+2581 starts a word and nothing goes on; files of early converters have "##" already.
    """
    if not any(piece.startswith(SPACE_MARK) for piece in vocabulary.pieces):
        return vocabulary.pieces
    special = frozenset(vocabulary.ids_of(CONTROL, UNKNOWN, USER_DEFINED))
    return [
        piece if token in special else piece[1:] if piece.startswith(SPACE_MARK) else "##" + piece
        for token, piece in enumerate(vocabulary.pieces)
    ]


def is_cased(vocabulary: Vocabulary) -> bool:
    """Whether words of the vocabulary have capitals: files of cased models say so nowhere else."""
    words = vocabulary.texts(NORMAL)
    return any("A" <= char <= "Z" for word in words if word[-1:] != "]" for char in word)


def wordpiece_encoder(
    vocabulary: Vocabulary, *, unknown_id: int | None, lowercase: bool, strip_accents: bool
) -> LibraryEncoder:
    """BERT's WordPiece; a word of more than 100 characters is unknown, as there."""
    pieces = wordpiece_spelling(vocabulary)
    vocab = {piece: token for token, piece in enumerate(pieces)}
    return LibraryEncoder(
        WordPiece(vocab, unk_token="[UNK]" if unknown_id is None else pieces[unknown_id]),
        vocabulary,
        normalizer=normalizers.BertNormalizer(strip_accents=strip_accents, lowercase=lowercase),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )


def unigram_encoder(
    vocabulary: Vocabulary,
    *,
    unknown_id: int | None,
    charsmap: bytes,
    space_prefix: bool,
    collapse_spaces: bool,
) -> LibraryEncoder:
    """SentencePiece's unigram model: the likeliest split by the pieces' log-probabilities.

    charsmap: SentencePiece's precompiled normalization, may be empty.
    """
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if collapse_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    has_bytes = bool(vocabulary.ids_of(BYTE))
    return LibraryEncoder(
        Unigram(_text_pieces(vocabulary), unk_id=unknown_id, byte_fallback=has_bytes),
        vocabulary,
        normalizer=normalizers.Sequence(steps),
        pre_tokenizer=pre_tokenizers.Metaspace(
            prepend_scheme="always" if space_prefix else "never"
        ),
    )


def _text_pieces(vocabulary: Vocabulary) -> list[tuple[str, float]]:
    """Pieces and scores. The library would find a piece of any type in a text, control tokens with
    the best score there is, so those that stand for no text get names that no text has."""
    scored = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
    for token in vocabulary.ids_of(CONTROL, UNKNOWN, UNUSED):
        scored[token] = (unheard_of(), 0.0)
    return scored


def unheard_of() -> str:
    """A piece that is in no text: nobody can guess it, and it is never shown."""
    return secrets.token_hex(16)
