"""Tensors joined and taken apart: GGUF stacks experts and splits latents where folders do not.

Each function gives the same numbers under the other format's canonical names; nothing is made
before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.models import ModelConfig, fit_tensors
from octavo.models.mixture import stack_experts
from octavo.records import replace
from octavo.weights import SCHEMES, Checkpoint, Tensor, dequantize
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import DerivedTensor, float32_tensor

Array = NDArray[Any]
Arrange = Callable[[Sequence[Array]], Array]
Tensors = Mapping[str, Tensor]


def grouped(checkpoint: Checkpoint, config: ModelConfig) -> Checkpoint:
    """A folder's tensors as GGUF groups them. Raises FormatError where experts are missing."""
    if config.latent is not None:
        tensors = _split_latents(config, stack_experts(config, checkpoint))
        return replace(checkpoint, tensors=tensors)
    if config.mixture is not None:
        return fit_tensors(config, checkpoint)
    if config.encoder is not None:
        return replace(checkpoint, tensors=_as_bert(config, checkpoint.tensors))
    return checkpoint


def ungrouped(checkpoint: Checkpoint, config: ModelConfig) -> Checkpoint:
    """A GGUF file's tensors as the family's folders group them."""
    tensors = checkpoint.tensors
    if config.architecture == "gptoss":
        tensors = _clamped_experts(tensors)
    elif config.architecture == "granitemoe":
        tensors = _joined(tensors, "ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps", axis=1)
        tensors = _joined(tensors, "ffn_gate_shexp", "ffn_up_shexp", "ffn_up_shexp", axis=0)
    elif config.mixture is not None:
        tensors = _single_experts(tensors)
    if config.latent is not None:
        tensors = _joined_latents(tensors)
    return replace(checkpoint, tensors=tensors)


def formed(name: str, shape: tuple[int, ...], parts: Sequence[Tensor], arrange: Arrange) -> Tensor:
    """A tensor of other tensors' numbers, moved by `arrange` and not changed. Floats of one type
    keep their bits; others become float32."""
    first = parts[0].scheme
    kept = first.block_elems == 1 and all(part.scheme is first for part in parts)
    scheme = first if kept else SCHEMES["F32"]
    return DerivedTensor(name, shape, scheme, _Formed(tuple(parts), arrange))


@dataclass(frozen=True, eq=False)
class _Formed:
    """See `formed` and weights.tensor.Origin."""

    parts: tuple[Tensor, ...]
    arrange: Arrange

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return tuple(source for part in self.parts for source in _sources(part))

    def values(self) -> NDArray[np.float32]:
        arrays = [dequantize(part) for part in self.parts]
        return np.ascontiguousarray(self.arrange(arrays), np.float32)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if any(part.scheme is not scheme for part in self.parts):
            return self.values().reshape(-1).view(np.uint8)
        words = [p.data.view(f"u{scheme.block_bytes}").reshape(p.shape) for p in self.parts]
        return np.ascontiguousarray(self.arrange(words)).reshape(-1).view(np.uint8)


def _sources(tensor: Tensor) -> tuple[NDArray[np.uint8], ...]:
    return tensor.origin.sources if isinstance(tensor, DerivedTensor) else (tensor.data,)


def _as_bert(config: ModelConfig, tensors: Tensors) -> Tensors:
    """Without RoBERTa's pooler, which nothing reads, and the positions that belong to padding."""
    offset = config.encoder.position_offset if config.encoder else 0
    found = {name: t for name, t in tensors.items() if not name.startswith("pooler.")}
    table = found.get("position_embd.weight")
    if offset and table is not None:
        found[table.name] = table.rows(table.name, offset, table.shape[0])
    return found


def with_first_rows(checkpoint: Checkpoint, first: NDArray[np.float32]) -> Checkpoint:
    """The table of positions with `first` [rows, hidden] before it: the way back of that."""
    name = "position_embd.weight"
    table = checkpoint.tensors[name]
    shape = (len(first) + table.shape[0], *table.shape[1:])
    parts = [float32_tensor(name, first), table]
    whole = formed(name, shape, parts, lambda arrays: np.concatenate(arrays))
    return replace(checkpoint, tensors={**checkpoint.tensors, name: whole})


def _split_latents(config: ModelConfig, tensors: Tensors) -> Tensors:
    """kv_b [H * (nope + value), R] as k_b [H, R, nope] and v_b [H, value, R]."""
    m, heads = config.latent, config.num_heads
    assert m is not None
    nope, joined = m.nope_dim, m.nope_dim + m.value_dim
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, rest = name.rpartition(".attn_kv_b.")
        if not layer or tensor.shape != (heads * joined, m.kv_rank):
            found[name] = tensor
            continue
        k_b, v_b = f"{layer}.attn_k_b.{rest}", f"{layer}.attn_v_b.{rest}"

        def keys(arrays: Sequence[Array]) -> Array:
            return arrays[0].reshape(heads, joined, -1)[:, :nope].transpose(0, 2, 1)

        def values(arrays: Sequence[Array]) -> Array:
            return arrays[0].reshape(heads, joined, -1)[:, nope:]

        found[k_b] = formed(k_b, (heads, m.kv_rank, nope), [tensor], keys)
        found[v_b] = formed(v_b, (heads, m.value_dim, m.kv_rank), [tensor], values)
    return found


def _joined_latents(tensors: Tensors) -> Tensors:
    """The way back. A file of before the split has kv_b itself."""
    found = dict(tensors)
    for name in [name for name in tensors if ".attn_k_b." in name]:
        other, whole = name.replace("attn_k_b", "attn_v_b"), name.replace("attn_k_b", "attn_kv_b")
        k_b, v_b = tensors[name], tensors.get(other)
        if v_b is None or len(k_b.shape) != 3 or len(v_b.shape) != 3:
            continue
        heads, rank, nope = k_b.shape
        shape = (heads * (nope + v_b.shape[1]), rank)
        found[whole] = formed(whole, shape, [found.pop(name), found.pop(other)], _heads_together)
    return found


def _heads_together(arrays: Sequence[Array]) -> Array:
    keys, values = arrays
    return np.concatenate([keys.transpose(0, 2, 1), values], axis=1)


def _single_experts(tensors: Tensors) -> Tensors:
    """blk.N.ffn_gate_exps.weight [E, ...] as blk.N.ffn_gate.E.weight, and up and down likewise."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        stem, marked, rest = name.partition("_exps.")
        if not marked or len(tensor.shape) != 3:
            found[name] = tensor
            continue
        for expert, part in enumerate(tensor.slices()):
            own = f"{stem}.{expert}.{rest}"
            found[own] = Tensor(own, part.shape, part.scheme, part.data)
    return found


def _joined(tensors: Tensors, first: str, second: str, whole: str, *, axis: int) -> Tensors:
    """Every layer's `first` and `second` as one tensor, one behind the other along `axis`."""
    found = dict(tensors)
    for name in _layers_with(tensors, first):
        parts = [found.pop(name), found.pop(name.replace(first, second))]
        shape = list(parts[0].shape)
        shape[axis] += parts[1].shape[axis]
        own = name.replace(first, whole)
        found[own] = formed(own, tuple(shape), parts, lambda a: np.concatenate(a, axis))
    return found


def _clamped_experts(tensors: Tensors) -> Tensors:
    """gpt-oss: gate and up as neighbours, and matrices turned."""
    found = dict(tensors)
    for name in _layers_with(tensors, "ffn_gate_exps"):
        parts = [found.pop(name), found.pop(name.replace("gate", "up"))]
        experts, rows, *rest = parts[0].shape
        own = name.replace("gate", "gate_up")
        found[own] = formed(own, (experts, *rest, 2 * rows), parts, _neighbours)
    for name in _layers_with(tensors, "ffn_down_exps"):
        down = found[name]
        if len(down.shape) == 3:
            experts, rows, columns = down.shape
            found[name] = formed(name, (experts, columns, rows), [down], _turned)
    return found


def _turned(arrays: Sequence[Array]) -> Array:
    return arrays[0].swapaxes(1, 2)


def _neighbours(arrays: Sequence[Array]) -> Array:
    """Two [E, F, D] as [E, D, 2F], or two [E, F] as [E, 2F], row by row in turn."""
    both = np.stack(arrays, axis=2)
    both = both.reshape(both.shape[0], -1, *both.shape[3:])
    return both.swapaxes(1, 2) if both.ndim == 3 else both


def _layers_with(tensors: Iterable[str], part: str) -> list[str]:
    return [name for name in tensors if f".{part}." in name]
