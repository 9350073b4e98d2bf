"""GraniteMoE: Granite with experts in every layer, and shared ones in some models."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import RouteAttrs
from octavo.models import llama
from octavo.models.config import ModelConfig
from octavo.models.fused import split
from octavo.models.mixture import halved_experts, read_mixture
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Experts are chosen by their logits, and softmax is taken over the chosen."""
    config = llama.adjust_granite(config, source)
    config = read_mixture(config, source, RouteAttrs(1, "chosen_softmax"))
    key = "expert_shared_feed_forward_length" if source.is_gguf else "shared_intermediate_size"
    if source.count(key) == 0:
        return config
    assert config.mixture is not None
    return replace(config, mixture=replace(config.mixture, shared_size=source.size(key)))


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Gate and up apart, which Hugging Face files join."""
    tensors = halved_experts(checkpoint.tensors)
    size = config.mixture.shared_size if config.mixture else 0
    return split(tensors, "ffn_up_shexp", {"ffn_gate_shexp": size, "ffn_up_shexp": size})
