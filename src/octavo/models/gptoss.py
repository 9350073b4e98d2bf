"""gpt-oss: experts with biases and a clamped SwiGLU, attention with sinks, every
other layer slides.

Hugging Face files hold gate and up as neighbouring rows of one tensor; in their unquantized form
the experts' matrices are turned besides.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.graph import ExpertsAttrs, Graph, RouteAttrs
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.huggingface import layer_types
from octavo.models.mixture import read_mixture
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights import dequantize
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import Checkpoint, DerivedTensor, StackedTensor, Tensor, float32_tensor

_ALPHA, _LIMIT = 1.702, 7.0


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Even layers slide. Frequencies are blended over a range that is not rounded to whole
    dimensions; GGUF files leave that unsaid."""
    named = None if source.is_gguf else layer_types(source, config.num_layers)
    window = source.size("attention.sliding_window" if source.is_gguf else "sliding_window", 128)
    config = read_mixture(config, source, RouteAttrs(1, "chosen_softmax"))
    assert config.mixture is not None
    alpha = _ALPHA if source.is_gguf else source.number("swiglu_alpha", _ALPHA)
    limit = _LIMIT if source.is_gguf else source.number("swiglu_limit", _LIMIT)
    experts = ExpertsAttrs("clamped_swiglu", alpha, limit)
    params = {**config.rope.params, "truncate": 0.0} if source.is_gguf else config.rope.params
    return replace(
        config,
        mixture=replace(config.mixture, experts=experts),
        rope=replace(config.rope, params=params),
        sliding_window=window,
        sliding_layers=named or tuple(i % 2 == 0 for i in range(config.num_layers)),
    )


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention with biases and sinks, and experts."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=None, sinks=True))
        x = d.add(x, d.mixture(d.norm(x, "post_attention_norm"), biased=True))
    return d.finish(x)


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Gate, up and down of each expert as rows; made while they are packed."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in checkpoint.tensors.items():
        if ".ffn_gate_up_exps." in name:
            _check_shape(config, name, tensor)
            for part, first in (("gate", 0), ("up", 1)):
                own = name.replace("gate_up", part)
                tensors[own] = _every_other(own, tensor, first)
        elif name.endswith(".ffn_down_exps.weight") and _is_turned(checkpoint, tensor):
            parts = [_Turned(slice_) for slice_ in tensor.slices()]
            tensors[name] = StackedTensor(name, [part.tensor(name) for part in parts])
        else:
            tensors[name] = tensor
    return tensors


def _check_shape(config: ModelConfig, name: str, tensor: Tensor) -> None:
    """Of a joined tensor, which is taken apart before the graph's check could name it."""
    m, features = config.mixture, config.hidden_size
    assert m is not None
    rows = 2 * m.hidden_size
    wanted: tuple[int, ...] = (m.num_experts, rows)
    if name.endswith(".weight"):
        turned = not isinstance(tensor, DerivedTensor)
        wanted = (*wanted, features) if not turned else (m.num_experts, features, rows)
    if tensor.shape != wanted:
        got = f"{tensor.home or config.name}: '{name}': got {list(tensor.shape)}"
        raise FormatError(f"{got}, expected {list(wanted)} by config.json")


def _is_turned(checkpoint: Checkpoint, tensor: Tensor) -> bool:
    """Whether experts are stored [K, N]: so they are in Hugging Face files unless quantized."""
    plain = checkpoint.format != "gguf" and not isinstance(tensor, DerivedTensor)
    return plain and len(tensor.shape) == 3


def _every_other(name: str, tensor: Tensor, first: int) -> Tensor:
    """Rows first, first + 2, ... of each expert."""
    if name.endswith(".bias"):
        return float32_tensor(
            name, np.ascontiguousarray(dequantize(tensor)[:, first::2]), tensor.home
        )
    slices = tensor.slices()
    if isinstance(tensor, DerivedTensor):  # quantized, and not turned
        return StackedTensor(name, [s.rows(name, first, s.shape[0], 2) for s in slices])
    return StackedTensor(name, [_Turned(s, first, 2).tensor(name) for s in slices])


class _Turned(Struct, frozen=True):
    """A matrix [K, N] of floats as [N, K], or some of its rows then. See weights.tensor.Origin."""

    source: Tensor
    first: int = 0
    step: int = 1

    def tensor(self, name: str) -> Tensor:
        """As a derived tensor of this name."""
        k, n = self.source.shape
        rows = len(range(self.first, n, self.step))
        return DerivedTensor(name, (rows, k), self.source.scheme, self, self.source.home)

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return (self.source.data,)

    def values(self) -> NDArray[np.float32]:
        values = dequantize(self.source)[:, self.first :: self.step]
        return np.ascontiguousarray(values.T)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        size = self.source.scheme.block_bytes
        words = self.source.data.reshape(*self.source.shape, size)[:, self.first :: self.step]
        return np.ascontiguousarray(words.swapaxes(0, 1)).reshape(-1)
