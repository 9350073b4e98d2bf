"""openai-harmony as a MessageReader: its parser reads what the model wrote, message by message.

The library works on tokens of one vocabulary, o200k_base, which it would download. A gpt-oss model
brings the same tokens along, so the file is written from the model being served; its SHA-256 tells
whether the model has that vocabulary at all. The library reads the file from a folder that an
environment variable names, and checks the hash again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import UnsupportedError
from octavo.parsing.harmony import MESSAGE, START
from octavo.parsing.harmony_header import Header
from octavo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of o200k_base.tiktoken."""
NUM_TOKENS = 199_998
"""In the file; control tokens come after them."""

_FILE = "o200k_base.tiktoken"
_FOLDER_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
_START_ID = 200_006
_PIECE = 1024  # characters encoded at once: the library's time grows with the square of long words
_loading = threading.Lock()
_loaded: list[HarmonyEncoding] = []  # at most one: a process reads one vocabulary only


class LibraryMessages:
    """Reads the messages of one answer with openai-harmony's streaming parser.

    Should it refuse something all the same, the rest of the answer is read without it.
    """

    def __init__(self, encoding: HarmonyEncoding) -> None:
        from openai_harmony import HarmonyError, StreamableParser

        self._encoding, self._error = encoding, HarmonyError
        self._parser = StreamableParser(encoding, None)
        self._gave_up = False

    def begin(self, header: Header) -> tuple[str | None, str | None]:
        """As the library reads the header; a malformed one, or one that it refuses, is repaired."""
        for text in (header.text, header.repaired):
            if text and not self._gave_up and self._feed_header(text):
                return self._parser.current_channel, self._parser.current_recipient
        self._gave_up = True
        return header.channel, header.recipient

    def content(self, text: str) -> str:
        """As the library gives it back, token by token."""
        if self._gave_up:
            return text
        try:
            return "".join(self._deltas(text))
        except self._error:
            self._gave_up = True
            return text

    def end(self, marker: str) -> None:
        """The token that ends a message."""
        if not self._gave_up:
            self._feed(marker)

    def _feed_header(self, text: str) -> bool:
        """Whether it was accepted."""
        try:
            self._feed(START + text + MESSAGE)
        except self._error:
            return False
        return True

    def _feed(self, text: str) -> None:
        for token in self._encoding.encode(text, allowed_special="all"):
            self._parser.process(token)

    def _deltas(self, text: str) -> Iterator[str]:
        """Control tokens within a message are text: none of them ends it."""
        for start in range(0, len(text), _PIECE):
            piece = text[start : start + _PIECE]
            for token in self._encoding.encode(piece, disallowed_special=()):
                yield self._parser.process(token).last_content_delta or ""


class HarmonyLibrary:
    """openai-harmony with its vocabulary loaded."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding

    def messages(self) -> LibraryMessages:
        """A reader for one answer."""
        return LibraryMessages(self._encoding)


def harmony_library(tokenizer: Tokenizer) -> HarmonyLibrary:
    """The library, ready for a model with this tokenizer. Raises UnsupportedError if it is not
    installed, the model has another vocabulary, or the cache folder cannot be written."""
    from octavo.weights.cache import cache_folder

    if find_spec("openai_harmony") is None:
        raise UnsupportedError("openai-harmony is not installed (it comes with octavo[serve])")
    content = vocabulary_file(tokenizer)
    with _loading:
        if not _loaded:
            _loaded.append(load_encoding(cache_folder() / "vocabularies", content))
    return HarmonyLibrary(_loaded[0])


def vocabulary_file(tokenizer: Tokenizer) -> bytes:
    """The tokens of a model as o200k_base.tiktoken: a line each, base64 and rank. Raises
    UnsupportedError if they are others."""
    if tokenizer.token_bytes(_START_ID) == START.encode():
        lines = (
            b"%s %d\n" % (base64.b64encode(tokenizer.token_bytes(rank)), rank)
            for rank in range(NUM_TOKENS)
        )
        content = b"".join(lines)
        if hashlib.sha256(content).hexdigest() == SHA256:
            return content
    raise UnsupportedError("the model's vocabulary is not o200k_base, the only one it knows")


def load_encoding(folder: Path, content: bytes) -> HarmonyEncoding:
    """From the vocabulary in `folder`, written if it is not there or damaged. Raises
    UnsupportedError if it cannot be."""
    from openai_harmony import HarmonyEncodingName, HarmonyError, load_harmony_encoding

    name, path = str(HarmonyEncodingName.HARMONY_GPT_OSS), folder / _FILE
    with _folder_named(folder):
        if path.is_file():
            try:
                return load_harmony_encoding(name)
            except HarmonyError:
                pass
        try:
            _write(path, content)
            return load_harmony_encoding(name)
        except (OSError, HarmonyError) as error:
            raise UnsupportedError(f"its vocabulary cannot be kept in {path}: {error}") from None


def _write(path: Path, content: bytes) -> None:
    """In one piece: no other process sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        new = Path(scratch) / path.name
        new.write_bytes(content)
        os.replace(new, path)


@contextmanager
def _folder_named(folder: Path) -> Iterator[None]:
    """With the variable set that tells the library where its vocabularies are."""
    before = os.environ.get(_FOLDER_VARIABLE)
    os.environ[_FOLDER_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FOLDER_VARIABLE]
        else:
            os.environ[_FOLDER_VARIABLE] = before
