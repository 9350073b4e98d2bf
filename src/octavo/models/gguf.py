"""GGUF metadata -> ModelConfig: the keys all families share. A family adjusts the result."""

from __future__ import annotations

from octavo.errors import FormatError, UnsupportedError
from octavo.models.config import ModelConfig, RopeConfig
from octavo.models.source import Source
from octavo.weights.tensor import Checkpoint

_RMS_EPS = "attention.layer_norm_rms_epsilon"
_SCALINGS = ("none", "linear", "yarn")
"""Llama 3's own scaling comes as a tensor of divisors instead."""


def read_gguf(checkpoint: Checkpoint, architecture: str, family: str) -> tuple[ModelConfig, Source]:
    """The config by GGUF's common keys, and the source of the family's own ones."""
    source = Source(checkpoint, checkpoint.metadata, f"{architecture}.")
    general = source.under(checkpoint.metadata)
    hidden = source.size("embedding_length")
    heads = source.size("attention.head_count")
    head_dim = source.size("attention.key_length", max(1, hidden // heads))
    if not source.has("attention.kv_lora_rank"):
        _check_value_length(source, head_dim)
    rms = source.has(_RMS_EPS) or not source.has("attention.layer_norm_epsilon")
    config = ModelConfig(
        architecture=family,
        name=general.text("general.name", checkpoint.path.stem),
        vocab_size=_vocab_size(source, general),
        hidden_size=hidden,
        num_layers=source.size("block_count"),
        num_heads=heads,
        num_kv_heads=source.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=source.size("feed_forward_length"),
        norm_eps=source.number(_RMS_EPS if rms else "attention.layer_norm_epsilon"),
        norm_kind="rms" if rms else "layer",
        context_length=source.size("context_length"),
        rope=_rope(source, head_dim),
        bos_token_id=general.token_id("tokenizer.ggml.bos_token_id"),
        eos_token_ids=_eos_ids(general),
    )
    return config, source


def _check_value_length(source: Source, head_dim: int) -> None:
    value_dim = source.size("attention.value_length", head_dim)
    if value_dim != head_dim:
        raise UnsupportedError(
            f"{source.checkpoint.path}: '{source.prefix}attention.value_length': got {value_dim}, "
            f"expected {head_dim} like the keys; other value sizes are not supported"
        )


def _vocab_size(source: Source, general: Source) -> int:
    """Rows of the embedding table: logits are as wide, padding included."""
    table = source.checkpoint.tensors.get("token_embd.weight")
    if table is not None:
        return table.shape[0]
    if source.has("vocab_size"):
        return source.size("vocab_size")
    tokens = general.get("tokenizer.ggml.tokens")
    if tokens is None or not len(tokens):
        raise FormatError(
            f"{source.checkpoint.path}: no 'token_embd.weight', '{source.prefix}vocab_size' or "
            "'tokenizer.ggml.tokens'; the vocabulary's size is unknown"
        )
    return len(tokens)


def _eos_ids(general: Source) -> tuple[int, ...]:
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = (general.token_id(f"tokenizer.ggml.{name}") for name in names)
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def _rope(source: Source, head_dim: int) -> RopeConfig:
    scaling = source.text("rope.scaling.type", "none")
    if scaling not in _SCALINGS:
        raise UnsupportedError(
            f"{source.checkpoint.path}: '{source.prefix}rope.scaling.type': got '{scaling}', "
            f"expected one of {', '.join(_SCALINGS)}"
        )
    params: dict[str, float] = {}
    if source.has("rope.scale_linear"):  # the old spelling of a linear factor
        scaling, params["factor"] = "linear", source.number("rope.scale_linear")
    if scaling in ("linear", "yarn"):
        params["factor"] = source.number("rope.scaling.factor", params.get("factor"))
    if scaling == "yarn":
        params["original_context"] = source.size("rope.scaling.original_context_length")
    if scaling == "linear" and params["factor"] == 1.0:
        scaling, params = "none", {}
    return RopeConfig(
        base=source.number("rope.freq_base", 10000.0),
        rotary_dim=source.size("rope.dimension_count", head_dim),
        scaling=scaling,
        params=params,
    )
