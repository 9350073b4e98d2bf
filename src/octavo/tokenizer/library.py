"""WordPiece and unigram encoders for GGUF vocabularies, on the `tokenizers` library."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.models import Model, Unigram, WordPiece

from octavo.tokenizer.pieces import SPACE_MARK
from octavo.tokenizer.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary


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

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """See `Encoder.encode`."""
        library = self._special if parse_special else self._plain
        ids: list[int] = library.encode(text, add_special_tokens=False).ids
        return ids


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


def wordpiece_encoder(
    vocabulary: Vocabulary, *, unknown: str, lowercase: bool, strip_accents: bool
) -> LibraryEncoder:
    """BERT's WordPiece. In GGUF U+2581 starts a word; the library wants "##" on all others."""
    special = frozenset(vocabulary.ids_of(CONTROL, UNKNOWN, USER_DEFINED))
    vocab = {}
    for token, piece in enumerate(vocabulary.pieces):
        if token not in special:
            piece = piece[1:] if piece.startswith(SPACE_MARK) else "##" + piece
        vocab[piece] = token
    return LibraryEncoder(
        WordPiece(vocab, unk_token=unknown),
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
    scored = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if collapse_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return LibraryEncoder(
        Unigram(scored, unk_id=unknown_id, byte_fallback=False),
        vocabulary,
        normalizer=normalizers.Sequence(steps),
        pre_tokenizer=pre_tokenizers.Metaspace(
            prepend_scheme="always" if space_prefix else "never"
        ),
    )
