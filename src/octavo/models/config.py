"""A model's hyperparameters, read from GGUF metadata or config.json into one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding of one kind of layer. scaling: "none", "linear", "llama3", "yarn".

    rotary_dim is the number of rotated elements of each head (head_dim unless partial).
    params holds the scaling's own numbers (factor, low_freq_factor, original_context, ...).
    """

    base: float
    rotary_dim: int
    interleaved: bool = False
    scaling: str = "none"
    params: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig:
    """Everything a graph builder may ask. Sizes in elements, lengths in tokens."""

    architecture: str  # family key, e.g. "llama", "qwen2", "gemma3"
    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float
    context_length: int
    rope: RopeConfig
    rope_local: RopeConfig | None = None  # sliding layers, where they differ (gemma3)
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] = ()  # per layer; empty: none, or all if the window is set
    attention_scale: float | None = None  # None: head_dim ** -0.5
    embedding_scale: float = 1.0
    norm_unit_offset: float = 0.0  # 1 when stored norm weights lack their +1 (HF gemma)
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    activation: str = "silu"
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
