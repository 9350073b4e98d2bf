"""Tokenizers of Hugging Face folders: tokenizer.json and the files beside it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.models import Unigram

from octavo.errors import FormatError
from octavo.small_file import check_small, read_small
from octavo.tokenizer.base import Tokenizer
from octavo.tokenizer.charsmap import check_charsmap
from octavo.tokenizer.library import library_errors, unheard_of
from octavo.tokenizer.pieces import PieceStyle, spm_byte_value
from octavo.tokenizer.special import SpecialTokens, end_ids

MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
MAX_TOKENS = 1 << 24  # a vocabulary's ids stay below this


class FolderEncoder:
    """Encodes with tokenizer.json. Text of special tokens is plain text in a second copy, which is
    made when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.library = _open(path)
        self._plain: Library | None = None

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """See `Encoder.encode`."""
        with library_errors(str(self._path)):
            library = self.library if parse_special else self._plain_library()
            ids: list[int] = library.encode(text, add_special_tokens=False).ids
        return ids

    def _plain_library(self) -> Library:
        if self._plain is None:
            is_unigram = isinstance(self.library.model, Unigram)
            plain = _open(self._path, _without_special if is_unigram else None)
            plain.encode_special_tokens = True
            self._plain = plain
        return self._plain


def _without_special(text: str) -> str:
    """The same with a unigram model that finds no special token in a text: it would know them by
    their vocabulary entry, even as plain text."""
    state = json.loads(text)
    special = {token["content"] for token in state["added_tokens"] if token["special"]}
    hidden = [entry for entry in state["model"]["vocab"] if entry[0] in special]
    known = {entry[0] for entry in hidden}
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] not in known]
    for entry in hidden:
        entry[0] = unheard_of()
    return json.dumps(state)


def _open(path: Path, change: Callable[[str], str] | None = None) -> Library:
    check_small(path, MAX_TOKENIZER_BYTES)
    with library_errors(f"{path}: not a usable tokenizer.json"):
        if change is None:
            library = Library.from_file(str(path))
        else:
            library = Library.from_str(change(path.read_text("utf-8")))
        library.no_truncation()
        library.no_padding()
        _check_normalizer(library, path)
    return library


def _check_normalizer(library: Library, path: Path) -> None:
    """Refuse a normalization that would make the library panic on some text."""
    if library.normalizer is None:
        return
    state = json.loads(library.normalizer.__getstate__())
    for step in state.get("normalizers", [state]):
        charsmap = step.get("precompiled_charsmap")
        if charsmap:
            check_charsmap(b64decode(charsmap), f"{path}: precompiled_charsmap")


def from_folder(folder: Path, generation_config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a model folder, or None if it has no tokenizer.json.

    generation_config: the folder's generation_config.json; its eos ids end answers too.
    Raises FormatError naming the file.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    with library_errors(str(path)):
        return _tokenizer(path, generation_config)


def _tokenizer(path: Path, generation_config: Mapping[str, Any]) -> Tokenizer:
    folder, encoder = path.parent, FolderEncoder(path)
    library = encoder.library
    vocab = library.get_vocab(with_added_tokens=True)
    pieces = _pieces(vocab, path)
    added = library.get_added_tokens_decoder()
    decoder = _decoder_steps(library)
    config = read_object(folder / "tokenizer_config.json")
    hidden = [token for token, info in added.items() if info.special]
    bytes_known = any(step.get("type") == "ByteFallback" for step in decoder)
    return Tokenizer(
        pieces=pieces,
        style=_style(decoder),
        encoder=encoder,
        special=_special(library, vocab, config, generation_config, hidden),
        templates=read_templates(folder, config),
        literal_ids=frozenset(added),
        byte_ids=frozenset(_byte_ids(vocab)) if bytes_known else frozenset(),
        strip_space=any(_strips_space(step) for step in decoder),
    )


def _pieces(vocab: Mapping[str, int], path: Path) -> list[str]:
    size = max(vocab.values(), default=-1) + 1
    if size > MAX_TOKENS:
        raise FormatError(f"{path}: token id {size - 1}, expected less than {MAX_TOKENS}")
    pieces = [""] * size
    for piece, token in vocab.items():
        pieces[token] = piece
    return pieces


def _byte_ids(vocab: Mapping[str, int]) -> Iterable[int]:
    return (token for piece, token in vocab.items() if spm_byte_value(piece) is not None)


def _decoder_steps(library: Library) -> list[dict[str, Any]]:
    """The decoder as a flat list of JSON objects."""
    if library.decoder is None:
        return []
    state = json.loads(library.decoder.__getstate__())
    steps: list[dict[str, Any]] = state.get("decoders", [state])
    return steps


def _style(decoder: list[dict[str, Any]]) -> PieceStyle:
    types = {step.get("type") for step in decoder}
    if "ByteLevel" in types:
        return "byte_level"
    return "hf_wordpiece" if "WordPiece" in types else "spm"


def _strips_space(step: Mapping[str, Any]) -> bool:
    if step.get("type") == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "never")
    return step.get("type") == "WordPiece" or (step.get("type") == "Strip" and step["start"] > 0)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty if there is no such file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(read_small(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _special(
    library: Library,
    vocab: Mapping[str, int],
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    hidden: list[int],
) -> SpecialTokens:
    named = _named_tokens(config)
    eos = [vocab[named["eos_token"]]] if named.get("eos_token") in vocab else []
    declared = generation_config.get("eos_token_id")
    for token in declared if isinstance(declared, list) else [declared]:
        if isinstance(token, int) and token not in eos:
            eos.append(token)
    special = set(hidden)
    special_vocab = {piece: token for piece, token in vocab.items() if token in special}
    prefix, suffix = _affixes(library)
    middle = _middle(library, len(prefix), len(suffix))
    ends = end_ids(eos, special_vocab)
    return SpecialTokens(
        bos_id=vocab.get(named.get("bos_token", "")),
        eos_ids=ends,
        prefix_ids=prefix,
        suffix_ids=suffix,
        middle_ids=middle,
        hidden_ids=frozenset([*hidden, *ends]),
        named=named,
    )


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The "..._token" entries; one may be a text or an object with its "content"."""
    named = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            named[key] = text
    return named


def _affixes(library: Library) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the post-processor puts before and after a text."""
    bare = library.encode("a", add_special_tokens=False).ids
    full = library.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _middle(library: Library, prefix: int, suffix: int) -> tuple[int, ...]:
    """What the post-processor puts between two texts; prefix and suffix: how much round one."""
    bare = len(library.encode("a", add_special_tokens=False).ids)
    full = library.encode("a", "a", add_special_tokens=True).ids
    return tuple(full[prefix + bare : max(prefix + bare, len(full) - suffix - bare)])


def read_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name: from the files of today, else from tokenizer_config.json."""
    files = {path.stem: path for path in (folder / "additional_chat_templates").glob("*.jinja")}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: read_small(path).decode("utf-8", "replace") for name, path in files.items()}
    template = config.get("chat_template")
    if isinstance(template, str):
        return {"default": template}
    entries = template if isinstance(template, list) else []
    return {
        str(entry["name"]): entry["template"]
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("template"), str) and "name" in entry
    }
