"""BERT and its kin: norms behind the blocks, biases everywhere, learned positions.

RoBERTa and XLM-RoBERTa count positions from behind the padding token's id. DistilBERT has no token
types. nomic-bert rotates instead and has a gated MLP.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.encoder import Encoder, as_encoder, encoder_config, without_unused
from octavo.models.fused import split_qkv
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor

_TYPES = "token_types.weight"
_NOMIC_USUAL = {
    "prenorm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
    "activation_function": "swiglu",
}


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Learned positions from 0. GGUF keeps every kin of BERT like this, offsets cut away."""
    _check_positions(source)
    types = source.checkpoint.tensors.get(_TYPES)
    encoder = encoder_config(source, num_types=types.shape[0] if types is not None else 0)
    return as_encoder(config, encoder, activation=_activation(config, source))


def adjust_roberta(config: ModelConfig, source: Source) -> ModelConfig:
    """The first positions of the table belong to padding."""
    config = adjust(config, source)
    offset = (1 if source.token_id("pad_token_id") is None else source.get("pad_token_id")) + 1
    length = config.context_length - offset
    if length < 1 or config.encoder is None:
        raise source.error("max_position_embeddings", config.context_length, f"above {offset}")
    encoder = replace(config.encoder, position_offset=offset)
    return replace(config, context_length=length, encoder=encoder)


def adjust_distilbert(config: ModelConfig, source: Source) -> ModelConfig:
    """No token types; its classifiers have a rectifier."""
    if source.flag("sinusoidal_pos_embds") and "position_embd.weight" not in (
        source.checkpoint.tensors
    ):
        raise UnsupportedError(f"{source.checkpoint.path}: its positions are not stored")
    return as_encoder(config, encoder_config(source, head_activation="relu"))


def adjust_nomic(config: ModelConfig, source: Source) -> ModelConfig:
    """Rotation over whole heads, in halves. Its first config.json has names of its own for that."""
    for key, usual in _NOMIC_USUAL.items():
        if not source.is_gguf and source.has(key) and source.get(key) != usual:
            raise source.error(key, source.get(key), f"{usual}: other models are not built here")
    if not source.is_gguf and source.has("rotary_emb_base"):
        base = source.number("rotary_emb_base")
        config = replace(config, rope=replace(config.rope, base=base))
    types = source.checkpoint.tensors.get(_TYPES)
    encoder = encoder_config(source, num_types=types.shape[0] if types is not None else 0)
    return as_encoder(config, encoder, activation="silu")


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Without what is not used, and q, k and v apart where a file joins them."""
    return split_qkv(config, without_unused(config, checkpoint.tensors))


fit_nomic = fit


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Attention and MLP, each with a norm over its sum with what went in."""
    e = Encoder(config, tensors)
    x = e.embed_input(positions=True)
    for _ in e.layers():
        x = e.norm(e.add(x, e.attention(x, None, biased=None)), "attn_output_norm")
        x = e.norm(e.add(x, e.mlp(x)), "layer_output_norm")
    return e.finish(x)


def build_nomic(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """The same with rotation and a gated MLP."""
    e = Encoder(config, tensors)
    rotary = e.rotary("rope.inv_freq", config.rope)
    x = e.embed_input(positions=False)
    for _ in e.layers():
        x = e.norm(e.add(x, e.attention(x, rotary, biased=None)), "attn_output_norm")
        x = e.norm(e.add(x, e.gated_mlp(x, biased=None)), "layer_output_norm")
    return e.finish(x)


def _activation(config: ModelConfig, source: Source) -> str:
    """GGUF does not name it; these models were trained with the exact one."""
    return "gelu_erf" if source.is_gguf else config.activation


def _check_positions(source: Source) -> None:
    kind = source.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'position_embedding_type': got {kind!r:.40}, "
            "expected 'absolute'"
        )
