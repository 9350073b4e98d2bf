"""Adapters in peft's layout, with random numbers or with faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

PREFIX = "base_model.model."


def write_adapter(
    folder: Path,
    modules: dict[str, tuple[int, int]],
    rank: int = 4,
    config: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray[Any, Any]] | None = None,
    seed: int = 0,
    size: float = 0.3,
    dtype: type[np.floating[Any]] = np.float32,
) -> Path:
    """modules: name -> (outputs, inputs). config and tensors: what to add or replace (None: what to
    leave out)."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for module, (n, k) in modules.items():
        down = rng.standard_normal((rank, k)) * size
        up = rng.standard_normal((n, rank)) * size
        arrays[f"{PREFIX}{module}.lora_A.weight"] = down.astype(dtype)
        arrays[f"{PREFIX}{module}.lora_B.weight"] = up.astype(dtype)
    arrays |= tensors or {}
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: array for name, array in arrays.items() if array is not None}
    safetensors.numpy.save_file(kept, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(settings | (config or {})))
    return folder
