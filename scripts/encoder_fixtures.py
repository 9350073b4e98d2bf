"""Writes tests/fixtures/encoders: tiny random encoders with the hidden states and labels that
transformers computes in float32, and a tokenizer of letters.

    python scripts/encoder_fixtures.py [NAME ...]

Needs torch and transformers, like fixtures.py beside it. What is written is committed: at most
200 kB each. Adding one is a line in ENCODERS.
"""

from __future__ import annotations

import json
import shutil
import string
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from fixtures import MAX_BYTES, _randomise

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "encoders"
SPECIAL = {
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
}
LETTERS = list(string.ascii_lowercase + string.digits)
VOCAB = 5 + 2 * len(LETTERS) + 3
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_CROSS = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
_IDENTITY = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
_ROBERTA = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
_MODERN = {"num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0, "eos_token_id": 3}
_MODERN |= {"bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 3}

ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: (transformers' class, settings besides SIZES)
    "bert": ("BertModel", {}),
    "bert-masked": ("BertForMaskedLM", {}),
    "bert-rerank": ("BertForSequenceClassification", _CROSS),
    "roberta": ("RobertaModel", _ROBERTA),
    "xlm-roberta-rerank": (
        "XLMRobertaForSequenceClassification",
        {**_ROBERTA, **_CROSS, **_IDENTITY},
    ),
    "distilbert": (
        "DistilBertModel",
        {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    ),
    "nomic-bert": ("NomicBertModel", {}),
    "modernbert": ("ModernBertModel", _MODERN),
    "modernbert-rerank": (
        "ModernBertForSequenceClassification",
        {**_MODERN, **_CROSS, "classifier_pooling": "mean"},
    ),
    "modernbert-rerank-cls": ("ModernBertForSequenceClassification", {**_MODERN, **_CROSS}),
}


def main(names: list[str]) -> None:
    for name in names or ENCODERS:
        folder = OUT / name
        if folder.exists():
            shutil.rmtree(folder)
        write(name, folder)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{name}: {size / 1000:.0f} kB")
        if size > MAX_BYTES:
            raise SystemExit(f"{name} has {size} bytes, at most {MAX_BYTES} are allowed")


def write(name: str, folder: Path) -> None:
    """config.json, model.safetensors, tokenizer.json, expected.npz and sentence-transformers' files
    of one encoder."""
    kind, settings = ENCODERS[name]
    config_class = getattr(transformers, kind.partition("For")[0].removesuffix("Model") + "Config")
    config = config_class(**{**SIZES, **settings})
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, kind)(config).float().eval()
    ids = torch.randint(5, VOCAB, (40,))
    types = (torch.arange(40) >= 25).long()
    given = {"input_ids": ids[None]}
    if getattr(config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = types[None]
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            _randomise(key, parameter)
        base = getattr(model, model.base_model_prefix, model)
        arrays = {"input_ids": ids.numpy(), "hidden": base(**given).last_hidden_state[0].numpy()}
        if "token_type_ids" in given:
            arrays["types"] = types.numpy()
        if kind.endswith("ForSequenceClassification"):
            arrays["labels"] = model(**given).logits[0].numpy()
    model.save_pretrained(folder, safe_serialization=True)
    shown = json.loads((folder / "config.json").read_text())
    shown.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(shown, indent=1) + "\n")
    np.savez_compressed(folder / "expected.npz", **arrays)
    _write_tokenizer(folder, "roberta" if "roberta" in name else "bert")
    if "labels" not in arrays:
        _write_sentence_files(folder)


def _write_tokenizer(folder: Path, style: str) -> None:
    """WordPiece over letters and digits, with the family's marks round one text or two."""
    special = SPECIAL[style]
    words = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "of", "and"]
    vocab = {word: token for token, word in enumerate(words)}
    unknown = "[UNK]" if style == "bert" else "<unk>"
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    begin, end = ("[CLS]", "[SEP]") if style == "bert" else ("<s>", "</s>")
    second = f"$B:1 {end}:1" if style == "bert" else f"{end} $B {end}"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {second}",
        special_tokens=[(begin, vocab[begin]), (end, vocab[end])],
    )
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


def _write_sentence_files(folder: Path) -> None:
    """As sentence-transformers writes them: mean pooling, no normalisation, prompts."""
    kind = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules) + "\n")
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling) + "\n")
    settings = {"prompts": {"query": "find: ", "document": ""}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings) + "\n")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 48}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
