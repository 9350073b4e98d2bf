"""Byte-level BPE (GPT-2 and its many descendants) on the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE, Model

from octavo.tokenizer.pretokenizers import PreTokenizer


class LibraryEncoder:
    """An encoder that wraps two library tokenizers sharing one model: with control tokens known and
    without. user_defined tokens are known to both."""

    def __init__(
        self,
        model: Model,
        *,
        normalizer: normalizers.Normalizer | None = None,
        pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
        control: Iterable[str] = (),
        user_defined: Iterable[str] = (),
    ) -> None:
        user = [AddedToken(text, normalized=False) for text in user_defined]
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


def split_merges(merges: Iterable[str]) -> list[tuple[str, str]]:
    """GGUF's "left right" strings as pairs; the first character may itself be a space."""
    pairs = []
    for merge in merges:
        at = merge.find(" ", 1)
        if at > 0:
            pairs.append((merge[:at], merge[at + 1 :]))
    return pairs


def byte_level_encoder(
    vocab: Mapping[str, int],
    merges: Iterable[str],
    rules: PreTokenizer,
    *,
    control: Iterable[str],
    user_defined: Iterable[str],
) -> LibraryEncoder:
    """An encoder for a GPT-2 style vocabulary (piece -> id) and its merges in order of rank."""
    known = [pair for pair in split_merges(merges) if pair[0] + pair[1] in vocab]
    model = BPE(dict(vocab), known, ignore_merges=rules.ignore_merges)
    splits = [pre_tokenizers.Split(Regex(text), "isolated") for text in rules.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return LibraryEncoder(
        model,
        normalizer=normalizers.NFC() if rules.nfc else None,
        pre_tokenizer=pre_tokenizers.Sequence([*splits, to_bytes]),
        control=control,
        user_defined=user_defined,
    )
