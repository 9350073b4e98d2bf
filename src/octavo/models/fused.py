"""Tensors as graphs want them where a file stores them joined, mixed or turned; views where that is
enough."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from octavo.models.config import ModelConfig
from octavo.weights import dequantize
from octavo.weights.tensor import Tensor, float32_tensor

Tensors = Mapping[str, Tensor]


def split_qkv(config: ModelConfig, tensors: Tensors) -> Tensors:
    """blk.N.attn_qkv [(H + 2 Hkv) * head_dim, ...] -> attn_q, attn_k, attn_v."""
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return split(tensors, "attn_qkv", {"attn_q": q, "attn_k": kv, "attn_v": kv})


def split_gate_up(config: ModelConfig, tensors: Tensors) -> Tensors:
    """blk.N.ffn_up [2 * intermediate, ...] -> ffn_gate, then ffn_up."""
    size = config.intermediate_size
    return split(tensors, "ffn_up", {"ffn_gate": size, "ffn_up": size})


def split_qkv_by_head(config: ModelConfig, tensors: Tensors) -> Tensors:
    """The same where the query heads of a KV head are followed by its k and its v: Falcon's own
    files, and GPT-NeoX's, in which each query head has a KV head."""
    order = by_head_order(config)
    return split_qkv(config, {name: _ordered(name, t, order) for name, t in tensors.items()})


def by_head_order(config: ModelConfig) -> NDArray[np.intp]:
    """order[i]: the row of such a file that is row i of all q, then all k, then all v."""
    group, dim = config.num_heads // config.num_kv_heads, config.head_dim
    place = np.arange((config.num_heads + 2 * config.num_kv_heads) * dim)
    heads = place.reshape(config.num_kv_heads, group + 2, dim)
    parts = (heads[:, :group], heads[:, group], heads[:, group + 1])
    return np.concatenate([part.reshape(-1) for part in parts])


def transposed(tensors: Tensors, names: tuple[str, ...]) -> Tensors:
    """Every layer's weights of these names [K, N] as [N, K]: GPT-2's own files. Copies."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith(tuple(f".{w}.weight" for w in names)) and len(tensor.shape) == 2:
            values = dequantize(tensor)
            found[name] = float32_tensor(name, np.ascontiguousarray(values.T), tensor.home)
    return found


def _ordered(name: str, tensor: Tensor, order: NDArray[np.intp]) -> Tensor:
    if ".attn_qkv." not in name or tensor.shape[:1] != (len(order),):
        return tensor
    return tensor.reordered(order)


def split(tensors: Tensors, joined: str, parts: Mapping[str, int]) -> Tensors:
    """Every layer's `joined` weight and bias as `parts`: name -> rows. A tensor with other rows is
    left as it is, for the graph's check to name."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, rest = name.rpartition(f".{joined}.")
        if not layer or tensor.shape[:1] != (sum(parts.values()),):
            found[name] = tensor
            continue
        start = 0
        for part, rows in parts.items():
            own = f"{layer}.{part}.{rest}"
            found[own] = tensor.rows(own, start, start + rows)
            start += rows
    return found
