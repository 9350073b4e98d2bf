"""Quantized weights made from their formats' definitions, a number at a time: what readers are
judged by. Each function gives the stored parts of one module and the float32 weight [N, K]."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Parts = dict[str, tuple[str, np.ndarray[Any, Any]]]
Packed = tuple[Parts, Floats]
Rng = np.random.Generator

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP4 = tuple(v / 12 for v in (0, 0.0625, 8, 12, 4, 6, 2, 3))
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
    *(0.7229568362236023, 1.0),
)


def write_safetensors(path: Path, tensors: Parts) -> None:
    """A file of any dtypes: name -> (dtype, array of the same width)."""
    header: dict[str, Any] = {}
    blobs, at = [], 0
    for name, (dtype, array) in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [at, at + len(blob)],
        }
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def _stream(values: list[int], bits: int) -> list[int]:
    """Numbers as one stream of bits in 32-bit words, the lowest first."""
    whole = sum(value << (bits * i) for i, value in enumerate(values))
    return [whole >> (32 * i) & 0xFFFFFFFF for i in range(len(values) * bits // 32)]


def _words(rows: list[list[int]]) -> NDArray[np.int32]:
    return np.array(rows, np.uint32).view(np.int32)


def _half_scales(rng: Rng, *shape: int, size: float = 0.05) -> NDArray[np.float16]:
    return (rng.uniform(0.3, 1.0, shape) * size).astype(np.float16)


def awq(rng: Rng, n: int, k: int, group: int) -> Packed:
    groups = k // group
    q, zeros = rng.integers(0, 16, (k, n)), rng.integers(0, 16, (groups, n))
    scales = _half_scales(rng, groups, n)

    def pack(rows: NDArray[np.int64]) -> NDArray[np.int32]:
        return _words(
            [
                [
                    sum(int(row[c + o]) << 4 * i for i, o in enumerate(AWQ_ORDER))
                    for c in range(0, n, 8)
                ]
                for row in rows
            ]
        )

    dense = np.empty((n, k), np.float32)
    for i in range(k):
        dense[:, i] = (q[i] - zeros[i // group]) * scales[i // group].astype(np.float32)
    parts = {"qweight": pack(q), "qzeros": pack(zeros)}
    return {key: ("I32", value) for key, value in parts.items()} | {
        "scales": ("F16", scales)
    }, dense


def gptq(
    rng: Rng,
    n: int,
    k: int,
    group: int,
    *,
    bits: int = 4,
    symmetric: bool = True,
    spread: bool = False,
    alike: int = 0,
    second: bool = False,
) -> Packed:
    """spread: groups over the whole row; alike: in the same way in all modules of one width and
    number above 0."""
    groups = -(-k // group)
    least = 0 if second else 1
    q = rng.integers(0, 1 << bits, (k, n))
    zeros = rng.integers(least, (1 << bits) - 1 + least, (groups, n))
    if symmetric:
        zeros[:] = 1 << (bits - 1)
    scales = _half_scales(rng, groups, n, size=0.4 / (1 << (bits - 1)))
    g_idx = np.arange(k) // group
    if spread:
        g_idx = (np.random.default_rng([k, alike]) if alike else rng).permutation(g_idx)
    columns = [_stream([int(v) for v in q[:, j]], bits) for j in range(n)]
    rows = [_stream([int(v) - least for v in zero], bits) for zero in zeros]
    dense = np.empty((n, k), np.float32)
    for i in range(k):
        g = g_idx[i]
        dense[:, i] = (q[i] - zeros[g]) * scales[g].astype(np.float32)
    return {
        "qweight": ("I32", np.ascontiguousarray(_words(columns).T)),
        "qzeros": ("I32", _words(rows)),
        "scales": ("F16", scales),
        "g_idx": ("I32", g_idx.astype(np.int32)),
    }, dense


def pack_quantized(
    rng: Rng,
    n: int,
    k: int,
    group: int,
    *,
    bits: int = 4,
    symmetric: bool = True,
    spread: bool = False,
    alike: int = 0,
) -> Packed:
    groups, per_word, half = k // group, 32 // bits, 1 << (bits - 1)
    q = rng.integers(-half, half, (n, k))
    zeros = np.zeros((n, groups), np.int64) if symmetric else rng.integers(-half, half, (n, groups))
    scales = _half_scales(rng, n, groups, size=0.4 / half)
    g_idx = np.arange(k) // group
    if spread:
        g_idx = (np.random.default_rng([k, alike]) if alike else rng).permutation(g_idx)

    def pack(row: NDArray[np.int64]) -> list[int]:
        codes = [int(v) + half for v in row] + [0] * (-len(row) % per_word)
        starts = range(0, len(codes), per_word)
        return [sum(codes[s + i] << bits * i for i in range(per_word)) for s in starts]

    parts: Parts = {
        "weight_packed": ("I32", _words([pack(row) for row in q])),
        "weight_scale": ("F16", scales),
        "weight_shape": ("I64", np.array([n, k], np.int64)),
    }
    if not symmetric:
        columns = _words([pack(column) for column in zeros.T])
        parts["weight_zero_point"] = ("I32", np.ascontiguousarray(columns.T))
    if spread:
        parts["weight_g_idx"] = ("I32", g_idx.astype(np.int32))
    dense = np.empty((n, k), np.float32)
    for i in range(k):
        g = g_idx[i]
        dense[:, i] = (q[:, i] - zeros[:, g]) * scales[:, g].astype(np.float32)
    return parts, dense


def _bfloat16(values: Floats) -> tuple[NDArray[np.uint16], Floats]:
    """Cut to bfloat16: the bits, and what they mean."""
    bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def int_quantized(rng: Rng, n: int, k: int, *, symmetric: bool = True) -> Packed:
    """int8 with a bfloat16 scale a row."""
    q = rng.integers(-128, 128, (n, k), dtype=np.int8)
    zeros = rng.integers(-20, 20, (n, 1), dtype=np.int8) * (not symmetric)
    bits, scales = _bfloat16(rng.uniform(1e-3, 3e-3, (n, 1)).astype(np.float32))
    dense = (q.astype(np.float32) - zeros) * scales
    parts: Parts = {"weight": ("I8", q), "weight_scale": ("BF16", bits)}
    if not symmetric:
        parts["weight_zero_point"] = ("I8", zeros.astype(np.int8))
    return parts, dense


def e4m3(code: int) -> float:
    """One 8-bit float."""
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


def e5m2(code: int) -> float:
    """Another, with more exponents."""
    sign, exponent, mantissa = code >> 7, code >> 2 & 31, code & 3
    size = mantissa / 4 * 2.0**-14 if exponent == 0 else (1 + mantissa / 4) * 2.0 ** (exponent - 15)
    return -size if sign else size


def fp8(
    rng: Rng, n: int, k: int, *, scale: str = "row", block: int = 128, kind: str = "e4m3"
) -> Packed:
    """scale: "row", "whole" or "block"; the last in DeepSeek's names. kind: "e4m3" or "e5m2"."""
    value, least, most = {"e4m3": (e4m3, 0, 0x7F), "e5m2": (e5m2, 0x38, 0x60)}[kind]
    signs = rng.integers(0, 2, (n, k), np.uint8) << 7
    codes = rng.integers(least, most, (n, k), dtype=np.uint8) | signs
    values = np.array([[value(int(c)) for c in row] for row in codes], np.float32)
    shape = {"row": (n, 1), "whole": (1,), "block": (-(-n // block), -(-k // block))}[scale]
    scales = rng.uniform(5e-4, 2e-3, shape).astype(np.float32)
    dense = values.copy()
    for i in range(n):
        for j in range(k):
            at = {"row": (i, 0), "whole": (0,), "block": (i // block, j // block)}[scale]
            dense[i, j] *= scales[at]
    name = "weight_scale_inv" if scale == "block" else "weight_scale"
    return {"weight": (f"F8_{kind.upper()}", codes), name: ("F32", scales)}, dense


def bnb4(rng: Rng, n: int, k: int, *, kind: str = "nf4", nested: bool = True) -> Packed:
    signed = {"fp4": FP4, "e2m1": [v / 6 for v in E2M1]}.get(kind, [])
    table = np.array([*signed, *(-v for v in signed)] or NF4).astype(np.float32)
    kind = "nf4" if kind == "nf4" else "fp4"
    codes = rng.integers(0, 16, n * k)
    runs = -(-n * k // 64)
    parts: Parts = {
        "weight": ("U8", np.array([[a << 4 | b] for a, b in codes.reshape(-1, 2)], np.uint8)),
        "weight.quant_map": ("F32", table),
    }
    state: dict[str, Any] = {"quant_type": kind, "blocksize": 64, "shape": [n, k]}
    state["dtype"] = "bfloat16"
    absmax = rng.uniform(0.1, 0.5, runs).astype(np.float32)
    if nested:
        outer = rng.uniform(0.1, 0.2, -(-runs // 256)).astype(np.float32)
        inner = np.linspace(-1, 1, 256).astype(np.float32)
        inner_codes = rng.integers(0, 256, runs, dtype=np.uint8)
        parts["weight.nested_absmax"] = ("F32", outer)
        parts["weight.nested_quant_map"] = ("F32", inner)
        parts["weight.absmax"] = ("U8", inner_codes)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25}
        for i, code in enumerate(inner_codes):
            absmax[i] = inner[code] * outer[i // 256] + np.float32(0.25)
    else:
        parts["weight.absmax"] = ("F32", absmax)
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    parts[f"weight.quant_state.bitsandbytes__{kind}"] = ("U8", text)
    flat = np.array([table[c] * absmax[i // 64] for i, c in enumerate(codes)], np.float32)
    return parts, flat.reshape(n, k)


def bnb8(rng: Rng, n: int, k: int) -> Packed:
    q = rng.integers(-127, 128, (n, k), dtype=np.int8)
    absmax = rng.uniform(0.1, 0.5, n).astype(np.float32)
    dense = q.astype(np.float32) * (absmax / np.float32(127))[:, None]
    parts: Parts = {"weight": ("I8", q), "SCB": ("F32", absmax)}
    return parts | {"weight_format": ("U8", np.array(0, np.uint8))}, dense


def _e2m1(rng: Rng, n: int, k: int) -> tuple[NDArray[np.uint8], Floats]:
    codes = rng.integers(0, 16, (n, k))
    values = [[(-1 if c & 8 else 1) * E2M1[c & 7] for c in row] for row in codes]
    packed = [[row[i] | row[i + 1] << 4 for i in range(0, k, 2)] for row in codes]
    return np.array(packed, np.uint8), np.array(values, np.float32)


def mxfp4(rng: Rng, n: int, k: int) -> Packed:
    """As compressed-tensors stores it."""
    packed, values = _e2m1(rng, n, k)
    exponents = rng.integers(120, 126, (n, k // 32), dtype=np.uint8)
    for j in range(k):
        values[:, j] *= 2.0 ** (exponents[:, j // 32].astype(np.float32) - 127)
    return {"weight_packed": ("U8", packed), "weight_scale": ("U8", exponents)}, values


def nvfp4(rng: Rng, n: int, k: int) -> Packed:
    packed, values = _e2m1(rng, n, k)
    codes = rng.integers(1, 0x7F, (n, k // 16), dtype=np.uint8)
    outer = np.array([900.0], np.float32)
    for i in range(n):
        for j in range(k):
            values[i, j] *= np.float32(e4m3(int(codes[i, j // 16]))) / outer[0]
    return {
        "weight_packed": ("U8", packed),
        "weight_scale": ("F8_E4M3", codes),
        "weight_global_scale": ("F32", outer),
    }, values


def write_pair(
    base: Path,
    out: Path,
    quantization: dict[str, Any],
    pack: Callable[..., Packed],
    more: Callable[[str], dict[str, Any] | None] = lambda _: {},
) -> tuple[Path, Path]:
    """The model at `base` with random quantized layers, and the same with their float32 weights.
    more: what else `pack` is told of a module; None: it is left alone."""
    import safetensors.numpy

    rng = np.random.default_rng(5)
    quantized: Parts = {}
    dense: Parts = {}
    for name, array in safetensors.numpy.load_file(base / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        told = more(stem) if ".layers." in name and array.ndim == 2 else None
        if told is not None:
            parts, weight = pack(rng, *array.shape, **told)
            quantized |= {f"{stem}.{ending}": part for ending, part in parts.items()}
            dense[name] = ("F32", weight)
        else:
            quantized[name] = dense[name] = ("F32", array)
    config = json.loads((base / "config.json").read_text())
    folders = (out / "quantized", out / "dense")
    for folder, tensors, extra in zip(
        folders, (quantized, dense), ({"quantization_config": quantization}, {}), strict=True
    ):
        folder.mkdir(parents=True)
        write_safetensors(folder / "model.safetensors", tensors)
        (folder / "config.json").write_text(json.dumps(config | extra))
    return folders
