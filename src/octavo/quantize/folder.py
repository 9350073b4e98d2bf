"""A file of blocks said again as compressed-tensors does, number for number.

Q4_0's nibbles and Q8_0's bytes are compressed-tensors' integers, their scales its scales; what has
one scale for 128 columns drops the copies. Only fp8 is rounded here, with a scale for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.convert.run import Conversion
from octavo.convert.tensors import as_scheme
from octavo.errors import UnsupportedError
from octavo.models import config_from
from octavo.quantize.recipe import Recipe, is_quantized
from octavo.quantize.rounding import Bytes
from octavo.weights import Tensor, dequantize, open_checkpoint
from octavo.weights.safetensors_writer import StoredTensor, write_folder
from octavo.weights.whole import whole_folder

E4M3_MAX = 448.0
Make = Callable[[], Bytes]


def write_compressed(blocks: Path, target: Path, recipe: Recipe) -> None:
    """The GGUF file `blocks`, written by this recipe, as a Hugging Face folder.

    Raises UnsupportedError for families that a folder of integers is not read of.
    """
    job = Conversion(open_checkpoint(blocks), config_from(open_checkpoint(blocks)), "auto", None)
    if job.conventions.turned:
        raise UnsupportedError(
            f"quantize: {job.config.name}: compressed-tensors has no form for weights stored"
            " [in, out]; write a .gguf file"
        )
    _, stored = job.folder_header(target)
    parts: list[StoredTensor] = []
    makers: dict[str, Make] = {}
    ignored = ["lm_head"]
    for entry, tensor in stored.values():
        if _is_body(tensor) and _is_packed(tensor, recipe):
            made = (
                _fp8(job, entry, tensor)
                if recipe.name == "fp8"
                else _packed(job, entry, tensor, recipe.group or 32)
            )
        else:
            if _is_body(tensor):
                ignored.append(entry.name.removesuffix(".weight"))
            made = [(entry, _plain(job, entry, tensor))]
        for part, make in made:
            parts.append(part)
            makers[part.name] = make
    texts, _ = job.folder_header(target, {"quantization_config": _config(recipe, ignored)})
    with whole_folder(target) as folder:
        for name, text in texts.items():
            folder.write_text(name, text)
        write_folder(folder, parts, lambda part: makers[part.name]())


def _is_body(tensor: Tensor) -> bool:
    return tensor.name.startswith("blk.") and is_quantized(tensor)


def _is_packed(tensor: Tensor, recipe: Recipe) -> bool:
    return tensor.scheme.name == recipe.body


def _plain(job: Conversion, entry: StoredTensor, tensor: Tensor) -> Make:
    def make() -> Bytes:
        turned = job.turner.to_folder(tensor, job.checkpoint.metadata)
        return as_scheme(turned, entry.dtype).data

    return make


def _packed(
    job: Conversion, entry: StoredTensor, tensor: Tensor, group: int
) -> list[tuple[StoredTensor, Make]]:
    """weight_packed, weight_scale and weight_shape of blocks of 4 or 8 bits."""
    name, (rows, columns) = entry.name, entry.shape
    bits = 4 if tensor.scheme.name == "Q4_0" else 8

    def blocks() -> Bytes:
        turned = job.turner.to_folder(tensor, job.checkpoint.metadata)
        return turned.data.reshape(rows, columns // 32, -1)

    def words() -> Bytes:
        codes = _codes(blocks(), bits).reshape(rows, columns)
        return pack_words(codes, bits).reshape(-1).view(np.uint8)

    def scales() -> Bytes:
        own = np.ascontiguousarray(blocks()[:, :: group // 32, :2])
        return own.reshape(-1)

    def shape() -> Bytes:
        return np.array([rows, columns], np.int64).view(np.uint8)

    per_word = 32 // bits
    return [
        (StoredTensor(f"{name}_packed", "I32", (rows, columns // per_word)), words),
        (StoredTensor(f"{name}_scale", "F16", (rows, columns // group)), scales),
        (StoredTensor(f"{name}_shape", "I64", (2,)), shape),
    ]


def _codes(blocks: Bytes, bits: int) -> NDArray[np.uint32]:
    """Integers plus 2^(bits-1), as they are packed."""
    body = blocks[:, :, 2:]
    if bits == 8:
        return (body ^ np.uint8(128)).astype(np.uint32)
    return np.concatenate([body & 15, body >> 4], axis=2).astype(np.uint32)


def pack_words(codes: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """[N, K] numbers of so many bits as words, the first in the lowest bits."""
    per_word = 32 // bits
    grouped = codes.reshape(len(codes), -1, per_word)
    shifts = (np.arange(per_word) * bits).astype(np.uint32)
    words: NDArray[np.uint32] = np.bitwise_or.reduce(grouped << shifts, axis=2)
    return words


def _fp8(job: Conversion, entry: StoredTensor, tensor: Tensor) -> list[tuple[StoredTensor, Make]]:
    """weight in e4m3 and weight_scale, one for each row."""
    rows = entry.shape[0]

    def values() -> NDArray[np.float32]:
        return dequantize(job.turner.to_folder(tensor, job.checkpoint.metadata))

    def scale(x: NDArray[np.float32]) -> NDArray[np.float32]:
        peak = np.abs(x).max(axis=1, keepdims=True) / np.float32(E4M3_MAX)
        result: NDArray[np.float32] = np.where(peak > 0, peak, np.float32(1)).astype(np.float32)
        return result

    def weight() -> Bytes:
        x = values()
        return e4m3_bytes(x / scale(x)).reshape(-1)

    return [
        (StoredTensor(entry.name, "F8_E4M3", entry.shape), weight),
        (
            StoredTensor(f"{entry.name}_scale", "F32", (rows, 1)),
            lambda: scale(values()).reshape(-1).view(np.uint8),
        ),
    ]


def e4m3_bytes(x: NDArray[np.float32]) -> Bytes:
    """Numbers of at most 448 in magnitude as e4m3 (OCP FP8), to the nearest, halves to even."""
    size = np.abs(x)
    exponent = np.clip(np.floor(np.log2(np.maximum(size, 2.0**-9))), -6, 8)
    steps = np.rint(size / np.exp2(exponent - 3)).astype(np.int32)  # eighths of the power of two
    bits = (exponent.astype(np.int32) + 6) * 8 + steps
    bits = np.minimum(bits, 0x7E)
    result: Bytes = (bits | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)
    return result


def _config(recipe: Recipe, ignored: list[str]) -> dict[str, Any]:
    if recipe.name == "fp8":
        style, weights = "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}
    else:
        bits = 4 if recipe.body == "Q4_0" else 8
        style = "pack-quantized"
        weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": recipe.group}
    group = {
        "targets": ["Linear"],
        "weights": {**weights, "symmetric": True, "dynamic": False},
        "input_activations": None,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": style,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ignored,
    }
