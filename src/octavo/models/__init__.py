"""Model families: a checkpoint's metadata -> `ModelConfig` -> a graph of operators.

No kernel, no device and no request in here.
"""

from octavo.models.config import EncoderConfig, LatentConfig, MixtureConfig, ModelConfig, RopeConfig
from octavo.models.pooling import EmbeddingSettings, embedding_settings, pooling_of
from octavo.models.registry import FAMILIES, Family, build_graph, config_from, fit_tensors

__all__ = [
    "FAMILIES",
    "EmbeddingSettings",
    "EncoderConfig",
    "Family",
    "LatentConfig",
    "MixtureConfig",
    "ModelConfig",
    "RopeConfig",
    "build_graph",
    "config_from",
    "embedding_settings",
    "fit_tensors",
    "pooling_of",
]
