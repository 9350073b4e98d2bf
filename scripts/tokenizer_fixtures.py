"""Writes tests/fixtures/tokenizers: small vocabularies as GGUF metadata, with the ids that their
original implementations give: transformers' BertTokenizer and sentencepiece.

    python scripts/tokenizer_fixtures.py [NAME ...]

Needs transformers and sentencepiece, which nothing else here does. What is written is committed: at
most 200 kB each.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import tempfile
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import BertWordPieceTokenizer

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "tokenizers"
MAX_BYTES = 200_000
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

CORPUS = """The quick brown fox jumps over the lazy dog, and the dog does not care. A tokenizer
cuts words into pieces: common words stay whole, rare ones are spelled. Numbers such as 1984, 3.14
and 10,000 too. Übermütige Füchse springen über faule Hunde; das Café schließt um zehn. L'été, les
élèves étudient à l'école, où ça sent la crème brûlée. Привет, мир! Быстрая лиса.
敏捷的棕色狐狸跳过懒狗。 Reading and writing, rereading and rewriting; unreadable, readable, reader,
readers. Email user@example.com, or see https://example.com/a?b=c#d. Snake_case and camelCase and
SCREAMING_CASE. New York, Paris, Berlin and Tokyo are cities. She said: "Don't!" (and left).
x = y + z * 2; if (a < b) { return c; }"""

TEXTS = [
    "",
    " ",
    "Hello world",
    "The quick brown fox jumps over the lazy dog.",
    "  leading and   inner    spaces  ",
    "tabs\tand\nnew\r\nlines\u00a0and no-break\u3000ideographic",
    "rereadable unwritten readerships",
    "Übermütige Füchse, crème brûlée, naïve façade",
    "U\u0308bermu\u0308tige decomposed cafe\u0301",
    "ﬁne ｆｕｌｌｗｉｄｔｈ ① ™ ½",
    "Привет, мир! БЫСТРАЯ",
    "敏捷的棕色狐狸 and 日本語テスト 한국어",
    "emoji 😀👍🏽 and symbols ∑∂√ © ®",
    "1984 3.14 10,000 x=y+z*2",
    "user@example.com https://example.com/a?b=c#d",
    '"Don\'t!" — she said… (and left)',
    "zero\u200bwidth\u200d joiners \ufeffbom soft\u00adhyphen \x01control\x7f",
    "a" * 100 + " " + "b" * 101,
    "İstanbul ΣΊΣΥΦΟΣ ẞ",
    "[CLS] x [SEP] [MASK] [UNK] <s> </s> <unk>",
]


def wordpiece(cased: bool) -> dict[str, Any]:
    """BERT's, written as llama.cpp's converter writes it."""
    trained = BertWordPieceTokenizer(lowercase=not cased, strip_accents=not cased)
    trained.train_from_iterator(CORPUS.splitlines(), vocab_size=500, show_progress=False)
    vocab = trained.get_vocab()
    pieces = sorted(vocab, key=vocab.__getitem__)
    original = transformers.BertTokenizer(vocab=vocab, do_lower_case=not cased)
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    spelled = [p if p in special else p[2:] if p.startswith("##") else "\u2581" + p for p in pieces]
    roles = {"unknown": "[UNK]", "seperator": "[SEP]", "padding": "[PAD]"}
    roles |= {"cls": "[CLS]", "mask": "[MASK]"}
    metadata = {
        "model": "bert",
        "tokens": spelled,
        "token_type": [CONTROL if p in special else NORMAL for p in pieces],
        **{f"{role}_token_id": vocab[piece] for role, piece in roles.items()},
    }
    return _fixture(metadata, lambda text: original(text)["input_ids"])


def unigram(xlm_roberta: bool, byte_fallback: bool = False) -> dict[str, Any]:
    """SentencePiece's, with XLM-RoBERTa's or T5's tokens round a text."""
    model = _train(xlm_roberta, byte_fallback)
    original = sentencepiece.SentencePieceProcessor(model_proto=model)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    charsmap = proto.normalizer_spec.precompiled_charsmap
    metadata = {
        "model": "t5",
        "tokens": [piece.piece for piece in proto.pieces],
        "scores": [piece.score for piece in proto.pieces],
        "token_type": [int(piece.type) for piece in proto.pieces],
        "unknown_token_id": original.unk_id(),
        "eos_token_id": original.eos_id(),
        "padding_token_id": original.pad_id(),
        "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
        "precompiled_charsmap": base64.b64encode(zlib.compress(charsmap, 9)).decode(),
    }
    prefix = []
    if xlm_roberta:
        metadata |= {"bos_token_id": original.bos_id(), "add_bos_token": True}
        metadata |= {"seperator_token_id": original.eos_id(), "add_eos_token": True}
        prefix = [original.bos_id()]
    return _fixture(metadata, lambda text: [*prefix, *original.encode(text), original.eos_id()])


def _train(xlm_roberta: bool, byte_fallback: bool) -> bytes:
    """A model's file. Ids of special tokens as the originals have them."""
    ids = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3}
    if not xlm_roberta:
        ids = {"bos_id": -1, "pad_id": 0, "eos_id": 1, "unk_id": 2}
    writer = io.BytesIO()
    rules = Path(tempfile.mkdtemp()) / "rules.tsv"
    rules.write_text(_rules())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines() * 4),
        model_writer=writer,
        model_type="unigram",
        vocab_size=700,
        hard_vocab_limit=False,
        character_coverage=0.98 if byte_fallback else 1.0,
        byte_fallback=byte_fallback,
        normalization_rule_tsv=str(rules),
        user_defined_symbols=["<sep>"],
        minloglevel=2,
        **ids,
    )
    return writer.getvalue()


def _rules() -> str:
    """Some of the NFKC rules that SentencePiece's own set has: what it compiles of them all takes
    238 kB."""
    spaces = "\t\n\r\u00a0\u3000\u2028"
    wide = [*map(chr, range(0xFF01, 0xFF5F)), *map(chr, range(0xFB00, 0xFB07)), *"①™½…ß"]
    composed = [char for char in map(chr, range(0xC0, 0x17F)) if unicodedata.decomposition(char)]
    pairs = {char: unicodedata.normalize("NFKC", char) for char in wide}
    pairs |= {unicodedata.normalize("NFD", char): char for char in composed}
    pairs = {source: target for source, target in pairs.items() if source != target}
    pairs |= dict.fromkeys(spaces, " ") | dict.fromkeys("\u200b\ufeff\u00ad\x01\x7f", "")
    lines = (f"{_hex(source)}\t{_hex(target)}" for source, target in sorted(pairs.items()))
    return "\n".join(lines) + "\n"


def _hex(text: str) -> str:
    return " ".join(f"{ord(char):X}" for char in text)


def _fixture(metadata: dict[str, Any], encode: Callable[[str], list[int]]) -> dict[str, Any]:
    cases = [{"text": text, "ids": encode(text)} for text in TEXTS]
    return {"metadata": metadata, "cases": cases}


TOKENIZERS: dict[str, Callable[[], dict[str, Any]]] = {
    "wordpiece-uncased": lambda: wordpiece(cased=False),
    "wordpiece-cased": lambda: wordpiece(cased=True),
    "unigram-xlm-roberta": lambda: unigram(xlm_roberta=True),
    "unigram-t5": lambda: unigram(xlm_roberta=False),
    "unigram-bytes": lambda: unigram(xlm_roberta=False, byte_fallback=True),
}


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or TOKENIZERS:
        path = OUT / f"{name}.json"
        path.write_text(json.dumps(TOKENIZERS[name](), ensure_ascii=False) + "\n", "utf-8")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise SystemExit(f"{path}: has {size} bytes, expected at most {MAX_BYTES}")
        print(f"{path}: {size} bytes")


if __name__ == "__main__":
    main()
