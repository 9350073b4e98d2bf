"""Writes tests/fixtures/compressed: one linear layer in each format of compressed-tensors, packed
by that library itself, beside the weight that it unpacks.

    python scripts/fixtures_compressed.py

Needs torch and compressed-tensors, which nothing else here does. What is written is committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "compressed"
ROWS, COLUMNS = 32, 64

FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: (format, arguments of the weights)
    "int4": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}),
    "int4-zeros": (
        "pack-quantized",
        {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False},
    ),
    "int8-packed": ("pack-quantized", {"num_bits": 8, "strategy": "channel"}),
    "int8": ("int-quantized", {"num_bits": 8, "strategy": "channel"}),
    "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "fp8-block": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]},
    ),
    "mxfp4": (
        "mxfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
    ),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    ),
}


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, (kind, arguments) in FORMATS.items():
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
        state = _state(args)
        compressor = BaseCompressor.get_value_from_registry(kind)
        packed = compressor.compress(dict(state), scheme)
        weight = compressor.decompress(dict(packed), scheme)["weight"].float()
        packed = {f"layer.{key}": value.contiguous() for key, value in packed.items()}
        group = {"targets": ["Linear"], "weights": json.loads(args.model_dump_json())}
        config = {"format": kind, "config_groups": {"group_0": group}}
        save_file(packed | {"expected": weight}, OUT / f"{name}.safetensors")
        (OUT / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")


def _state(args: QuantizationArgs) -> dict[str, torch.Tensor]:
    """A random weight with scales (and zero points) as the strategy wants them."""
    weight = torch.randn(ROWS, COLUMNS) * 0.1
    shapes = {"channel": (ROWS, 1), "block": (-(-ROWS // 16), COLUMNS // 32)}
    group = args.group_size or 1
    shape = shapes.get(str(args.strategy), (ROWS, COLUMNS // group))
    top = 2 ** (args.num_bits - 1) if args.type == "int" else {8: 448, 4: 6}[args.num_bits]
    scale = torch.rand(shape) * 0.2 / top + 0.2 / top
    state = {"weight": weight, "weight_scale": scale.half().float()}
    if not args.symmetric:
        state["weight_zero_point"] = torch.randint(-4, 4, shape).to(torch.int8)
    if args.num_bits == 4 and args.type == "float":
        if group == 32:
            state["weight_scale"] = torch.exp2(torch.randint(-6, -3, shape).float())
        else:
            state["weight_global_scale"] = torch.tensor([500.0])
            state["weight_scale"] = (scale * 500).to(torch.float8_e4m3fn).float()
    return state


if __name__ == "__main__":
    main()
