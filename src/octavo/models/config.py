"""A model's hyperparameters, read from GGUF metadata or config.json into one frozen record."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from octavo.errors import FormatError
from octavo.graph import ExpertsAttrs, RouteAttrs

MAX_LAYERS = 4096
"""More than any model has; an absurd count must not become an absurd graph."""

MAX_EXPERTS = 4096
"""Likewise."""


class RopeConfig(Struct, frozen=True):
    """Rotary embedding of one kind of layer. scaling: "none", "linear", "llama3", "yarn",
    "longrope".

    rotary_dim is the number of rotated elements of each head (head_dim unless partial).
    params holds the scaling's own numbers (factor, low_freq_factor, original_context, ...).
    short_factors and long_factors: longrope's divisors of the frequencies, [rotary_dim / 2] each,
    for contexts up to the original one and beyond it; empty where the file has them as tensors.
    """

    base: float
    rotary_dim: int
    interleaved: bool = False
    scaling: str = "none"
    params: dict[str, float] = field(default_factory=dict)
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


class EncoderConfig(Struct, frozen=True):
    """What only encoders have, whose tokens see those behind them too.

    num_types: kinds of token (segments of a pair) that have an embedding each; 0: none.
    position_offset: row of the table of positions that belongs to the first one. num_labels: what
    the classification head gives; 0: there is none, and hidden states come out. head_pooling: what
    the head reads, the first token or the mean of all. head_activation: "tanh", or one of those
    that `activation` below may be. sigmoid: whether a score is the sigmoid of what the head gives.
    """

    num_types: int = 0
    position_offset: int = 0
    num_labels: int = 0
    head_pooling: Literal["cls", "mean"] = "cls"
    head_activation: str = "tanh"
    sigmoid: bool = True


class MixtureConfig(Struct, frozen=True):
    """The experts of a layer. hidden_size is that of one expert, shared_size that of the experts
    that every token goes to, taken together (0: none). dense_layers: per layer, whether it has a
    plain MLP instead; empty: none has."""

    num_experts: int
    hidden_size: int
    routing: RouteAttrs
    experts: ExpertsAttrs = field(default_factory=ExpertsAttrs)
    shared_size: int = 0
    dense_layers: tuple[bool, ...] = ()

    def in_layer(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return not (self.dense_layers and self.dense_layers[layer])


class LatentConfig(Struct, frozen=True):
    """Sizes of multi-head latent attention: of the latent that the cache holds, of the one that
    queries come from (0: they come from the hidden state), of a head's plain and rotated part of
    queries and keys, and of a head's values."""

    kv_rank: int
    q_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class ModelConfig(Struct, frozen=True):
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
    residual_scale: float = 1.0  # what every block's result is multiplied by (granite)
    logit_scale: float = 1.0
    parallel_blocks: bool = False  # attention and MLP read the same input (gpt-neox)
    ropeless_layers: tuple[bool, ...] = ()  # per layer; empty: all rotate
    activation: str = "silu"  # or "gelu" (tanh), "gelu_erf", "relu", "relu2" (squared)
    norm_kind: str = "rms"  # or "layer"
    mixture: MixtureConfig | None = None
    latent: LatentConfig | None = None  # head_dim is then that of queries, and num_kv_heads is 1
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    encoder: EncoderConfig | None = None  # None: a decoder

    @property
    def cached_per_token(self) -> int:
        """Numbers that the KV cache holds of a token, in all layers."""
        if self.latent is not None:
            return self.num_layers * (self.latent.kv_rank + self.latent.rope_dim)
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def window_of(self, layer: int) -> int | None:
        """The sliding window of a layer in tokens; None where it sees everything."""
        slides = self.sliding_layers[layer] if self.sliding_layers else True
        return self.sliding_window if slides else None

    def rotates(self, layer: int) -> bool:
        """Whether a layer's queries and keys are rotated."""
        return not (self.ropeless_layers and self.ropeless_layers[layer])


def validate_config(config: ModelConfig, where: str) -> None:
    """Check what no single key shows: sizes that must divide or bound each other.

    Raises FormatError naming the file (`where`), the numbers and the rule.
    """
    c = config
    ropes = [c.rope] + ([c.rope_local] if c.rope_local else [])
    rules = [
        (c.num_layers <= MAX_LAYERS, f"{c.num_layers} layers, more than {MAX_LAYERS}"),
        (c.num_heads % c.num_kv_heads == 0, f"{c.num_heads} heads on {c.num_kv_heads} KV heads"),
        (c.head_dim % 2 == 0, f"head size {c.head_dim}, which must be even"),
        (len(c.sliding_layers) in (0, c.num_layers), f"{len(c.sliding_layers)} layer kinds"),
        *(
            (r.rotary_dim % 2 == 0 and 2 <= r.rotary_dim <= c.head_dim, _rotary(r, c.head_dim))
            for r in ropes
        ),
        *((r.base > 1, f"rotary base {r.base:g}, which must be above 1") for r in ropes),
    ]
    if c.mixture is not None:
        rules += _mixture_rules(c.mixture, c.num_layers)
    broken = [text for holds, text in rules if not holds]
    if broken:
        raise FormatError(f"{where}: sizes that do not fit each other: {'; '.join(broken)}")


def _mixture_rules(m: MixtureConfig, num_layers: int) -> list[tuple[bool, str]]:
    r = m.routing
    groups_fit = m.num_experts % r.num_groups == 0 and r.top_groups <= r.num_groups
    reachable = m.num_experts // r.num_groups * r.top_groups
    return [
        (m.num_experts <= MAX_EXPERTS, f"{m.num_experts} experts, more than {MAX_EXPERTS}"),
        (r.top_k <= reachable, f"{r.top_k} experts a token of {reachable} that it can reach"),
        (groups_fit, f"{m.num_experts} experts, {r.top_groups} of {r.num_groups} groups"),
        (len(m.dense_layers) in (0, num_layers), f"{len(m.dense_layers)} layers dense or not"),
    ]


def _rotary(rope: RopeConfig, head_dim: int) -> str:
    return f"{rope.rotary_dim} rotated elements of {head_dim} (must be even and no more)"
