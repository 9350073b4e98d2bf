"""Writes tests/fixtures/lora: adapters for tiny models of tests, made by peft, with the logits
that the model with the adapter has in float32.

    python scripts/fixtures_lora.py [NAME ...]

Needs torch, transformers and peft, which nothing else here does. What is written is committed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers

TESTS = Path(__file__).parent.parent / "tests"
OUT = TESTS / "fixtures" / "lora"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: (base, settings of LoraConfig)
    "all": ("families/llama-yarn", {"r": 4, "lora_alpha": 8, "target_modules": ALL}),
    "rslora": (
        "families/llama-yarn",
        {"r": 7, "lora_alpha": 3, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]},
    ),
    "patterns": (
        "families/llama-yarn",
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ALL,
            "rank_pattern": {"o_proj": 2},
            "alpha_pattern": {"layers.1.mlp.up_proj": 1},
        },
    ),
    "head": ("families/llama-yarn", {"r": 2, "lora_alpha": 2, "target_modules": ["lm_head"]}),
    "dora": (
        "families/llama-yarn",
        {"r": 3, "lora_alpha": 6, "target_modules": ALL, "use_dora": True},
    ),
    "dora-joined": (
        "families/phi3-longrope",
        {"r": 2, "lora_alpha": 4, "target_modules": ["qkv_proj", "gate_up_proj"], "use_dora": True},
    ),
    "saved-head": (
        "families/llama-yarn",
        {"r": 2, "lora_alpha": 2, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ),
    "joined": (
        "families/phi3-longrope",
        {"r": 4, "lora_alpha": 8, "target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]},
    ),
    "turned": (
        "golden/gpt2",
        {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True},
    ),
}


def main(names: list[str]) -> None:
    for name in names or ADAPTERS:
        base, settings = ADAPTERS[name]
        folder = OUT / name
        if folder.exists():
            shutil.rmtree(folder)
        home = TESTS / (base if base.startswith("families") else f"{base.replace('/', '/tiny/')}")
        home = TESTS / "fixtures" / base if base.startswith("families") else home
        write(name, home, settings, folder)
        print(name, sum(file.stat().st_size for file in folder.iterdir()))


def write(name: str, base: Path, settings: dict[str, Any], folder: Path) -> None:
    """The adapter as peft saves it, and expected.npz."""
    torch.manual_seed(sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    with torch.no_grad():
        for key, parameter in wrapped.named_parameters():
            if "lora_" in key or "modules_to_save" in key:
                _randomise(key, parameter)
        with np.load(base / "expected.npz") as arrays:
            ids = torch.tensor(arrays["input_ids"])
        logits = wrapped(ids[None]).logits[0].numpy()
    wrapped.save_pretrained(folder, safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base.name
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    np.savez_compressed(folder / "expected.npz", input_ids=ids.numpy(), logits=logits)


def _randomise(name: str, parameter: torch.Tensor) -> None:
    """DoRA's lengths within a third of what they were; others large enough to show."""
    if "magnitude" in name:
        parameter.mul_(1 + torch.rand_like(parameter) / 3)
    else:
        parameter.copy_(torch.randn_like(parameter) * 0.5 * parameter.shape[-1] ** -0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
