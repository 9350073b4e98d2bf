"""Encoders on the `tokenizers` library, one function for each kind of GGUF vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE, Model, Unigram, WordPiece

from octavo.tokenizer.pieces import SPACE_MARK
from octavo.tokenizer.pretokenizers import PreTokenizer
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


def byte_level_encoder(
    vocabulary: Vocabulary, merges: Iterable[str], rules: PreTokenizer
) -> LibraryEncoder:
    """GPT-2 style BPE; merges are "left right", best first."""
    vocab = vocabulary.id_of
    model = BPE(dict(vocab), _known_merges(merges, vocab), ignore_merges=rules.ignore_merges)
    splits = [pre_tokenizers.Split(Regex(text), "isolated") for text in rules.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return LibraryEncoder(
        model,
        vocabulary,
        normalizer=normalizers.NFC() if rules.nfc else None,
        pre_tokenizer=pre_tokenizers.Sequence([*splits, to_bytes]),
    )


def spaced_bpe_encoder(vocabulary: Vocabulary, merges: Iterable[str]) -> LibraryEncoder:
    """BPE by merges over SentencePiece's way of writing: U+2581 for a space, "<0xAB>" for bytes."""
    vocab = vocabulary.id_of
    model = BPE(dict(vocab), _known_merges(merges, vocab), byte_fallback=True, fuse_unk=True)
    return LibraryEncoder(model, vocabulary, normalizer=normalizers.Replace(" ", SPACE_MARK))


def _known_merges(merges: Iterable[str], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges as pairs, without those whose parts or result are no pieces (the library refuses
    them). A left part may itself be a space."""
    pairs = []
    for merge in merges:
        at = merge.find(" ", 1)
        left, right = merge[:at], merge[at + 1 :]
        if at > 0 and left in vocab and right in vocab and left + right in vocab:
            pairs.append((left, right))
    return pairs


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
