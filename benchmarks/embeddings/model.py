"""A BERT of a usual size with random weights: speed does not depend on what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

SIZES: dict[str, dict[str, int]] = {
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "minilm-l6": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
}
_VOCAB, _POSITIONS = 30522, 512


def make(folder: Path, size: str) -> None:
    """config.json and model.safetensors, unless they are there."""
    if (folder / "model.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {**SIZES[size], "model_type": "bert", "architectures": ["BertModel"]}
    hidden = config["hidden_size"]
    config |= {"intermediate_size": 4 * hidden, "vocab_size": _VOCAB, "type_vocab_size": 2}
    config |= {"max_position_embeddings": _POSITIONS, "hidden_act": "gelu", "pad_token_id": 0}
    config |= {"layer_norm_eps": 1e-12, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    _write(folder / "model.safetensors", _shapes(hidden, config["num_hidden_layers"]))


def _shapes(hidden: int, layers: int) -> dict[str, tuple[int, ...]]:
    wide = 4 * hidden
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (_VOCAB, hidden),
        "embeddings.position_embeddings.weight": (_POSITIONS, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    linear = {
        "attention.self.query": (hidden, hidden),
        "attention.self.key": (hidden, hidden),
        "attention.self.value": (hidden, hidden),
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (wide, hidden),
        "output.dense": (hidden, wide),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
        for name, shape in linear.items():
            shapes[f"{at}.{name}.weight"] = shape
            shapes[f"{at}.{name}.bias"] = shape[:1]
    shapes |= {f"{norm}.{part}": (hidden,) for norm in norms for part in ("weight", "bias")}
    shapes |= {"pooler.dense.weight": (hidden, hidden), "pooler.dense.bias": (hidden,)}
    return shapes


def _write(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            base = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            values = rng.standard_normal(shape, np.float32) * np.float32(0.02) + np.float32(base)
            file.write(values.tobytes())
