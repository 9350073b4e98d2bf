"""Mixtures of experts, as families share them: the keys of both formats, and experts that a file
keeps apart."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import FormatError
from octavo.graph import RouteAttrs
from octavo.models.config import MixtureConfig, ModelConfig
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, StackedTensor, Tensor, alike

_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
_PARTS = ("ffn_gate", "ffn_up", "ffn_down")


def has_experts(source: Source) -> bool:
    """Whether the file says that there are any; GGUF files of dense models may say 0."""
    keys = ("expert_count",) if source.is_gguf else _COUNTS
    return any(source.count(key) > 0 for key in keys)


def read_mixture(config: ModelConfig, source: Source, routing: RouteAttrs) -> ModelConfig:
    """The config with its mixture. routing: as the family routes; top_k is taken from the file."""
    if source.is_gguf:
        count, chosen = source.size("expert_count"), source.size("expert_used_count")
        hidden = source.size("expert_feed_forward_length", config.intermediate_size)
    else:
        key = next((key for key in _COUNTS if source.has(key)), _COUNTS[0])
        count, chosen = source.size(key), source.size("num_experts_per_tok")
        hidden = source.size("moe_intermediate_size", config.intermediate_size)
    mixture = MixtureConfig(count, hidden, replace(routing, top_k=chosen))
    return replace(config, mixture=mixture)


def stack_experts(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """blk.N.ffn_gate.E.weight, one tensor an expert, as blk.N.ffn_gate_exps.weight [E, ...], and up
    and down likewise. Raises FormatError naming the layer where experts are missing or differ."""
    if config.mixture is None:
        return checkpoint.tensors
    tensors = dict(checkpoint.tensors)
    for layer in range(config.num_layers):
        for part in _PARTS:
            names = [f"blk.{layer}.{part}.{e}.weight" for e in range(config.mixture.num_experts)]
            found = {name: tensors.pop(name) for name in names if name in tensors}
            if found:
                whole = f"blk.{layer}.{part}_exps.weight"
                tensors[whole] = _stack(whole, names, found, str(checkpoint.path))
    return tensors


def halved_experts(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """blk.N.ffn_gate_up_exps.weight [E, 2F, D] as ffn_gate_exps and ffn_up_exps; views. One with an
    odd number of rows is left as it is, for the graph's check to name."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, rest = name.rpartition(".ffn_gate_up_exps.")
        if not layer or len(tensor.shape) != 3 or tensor.shape[1] % 2:
            found[name] = tensor
            continue
        half = tensor.shape[1] // 2
        slices = tensor.slices()
        for part, start in (("gate", 0), ("up", half)):
            own = f"{layer}.ffn_{part}_exps.{rest}"
            found[own] = StackedTensor(own, [s.rows(s.name, start, start + half) for s in slices])
    return found


def _stack(whole: str, names: list[str], found: dict[str, Tensor], where: str) -> Tensor:
    missing = [name for name in names if name not in found]
    if missing:
        raise FormatError(
            f"{where}: {len(found)} of {len(names)} experts are there; '{missing[0]}' is missing"
            f" beside {next(iter(found.values())).home or 'the others'}"
        )
    found = alike(found)
    first = found[names[0]]
    for tensor in found.values():
        if (tensor.shape, tensor.scheme) != (first.shape, first.scheme):
            got = f"{tensor.scheme.name} {list(tensor.shape)}"
            wanted = f"{first.scheme.name} {list(first.shape)} like '{first.name}'"
            place = tensor.home or where
            raise FormatError(f"{place}: '{tensor.name}': got {got}, expected {wanted}")
    return StackedTensor(whole, [found[name] for name in names])
