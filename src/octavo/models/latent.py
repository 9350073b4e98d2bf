"""Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1).

A token's keys and values are one latent, shared by all heads, and one rotated key. The matrices
that would expand a latent to the keys and values of a head are applied to the query and to the
result instead ("absorbed"): so nothing is expanded, neither in prefill nor in decode, and the cache
holds latent and rotated key alone.
"""

from __future__ import annotations

from octavo.graph import LatentAttentionAttrs, LatentWriteAttrs, Value
from octavo.models.config import LatentConfig, ModelConfig
from octavo.models.decoder import Decoder, Rotary
from octavo.models.source import Source
from octavo.records import replace


def read_latent(config: ModelConfig, source: Source) -> ModelConfig:
    """The config with the sizes of its latents, which both formats name in their own way."""
    if source.is_gguf:
        rope_dim = source.size("rope.dimension_count")
        key = source.size("attention.key_length_mla", config.head_dim)
        # Files of before the split of kv_b give the sizes of expanded heads.
        value = source.size("attention.value_length_mla", _value_length(source, key))
        names = ("attention.kv_lora_rank", "attention.q_lora_rank")
        nope_dim = key - rope_dim
        if nope_dim < 1:
            raise source.error("attention.key_length_mla", key, f"more than {rope_dim}, rotated")
    else:
        rope_dim, nope_dim = source.size("qk_rope_head_dim"), source.size("qk_nope_head_dim")
        value = source.size("v_head_dim")
        names = ("kv_lora_rank", "q_lora_rank")
    kv_rank, q_rank = (source.size(n) if source.has(n) else 0 for n in names)
    if kv_rank == 0:
        raise source.error(names[0], None, "the size of a latent")
    latent = LatentConfig(kv_rank, q_rank, nope_dim, rope_dim, value)
    rope = replace(config.rope, rotary_dim=rope_dim)
    return replace(config, latent=latent, rope=rope, head_dim=nope_dim + rope_dim, num_kv_heads=1)


def _value_length(source: Source, key: int) -> int:
    return source.size("attention.value_length", key)


def latent_attention(d: Decoder, x: Value, layer: int, rotary: Rotary) -> Value:
    """Projections to latent and queries, rotation, cache write, attention, way back."""
    c, g = d.config, d.graph
    m = c.latent
    assert m is not None
    source = x
    if m.q_rank:
        source = d.norm(d.project(x, "attn_q_a", m.q_rank), "attn_q_a_norm", m.q_rank)
    stem = "attn_q_b" if m.q_rank else "attn_q"
    q_nope = d.project(source, f"{stem}_nope", c.num_heads * m.nope_dim)
    q_rope = d.project(source, f"{stem}_rope", c.num_heads * m.rope_dim)
    latent = d.norm(d.project(x, "attn_kv_a", m.kv_rank), "attn_kv_a_norm", m.kv_rank)
    key = d.project(x, "attn_k_rope", m.rope_dim)
    attrs = replace(rotary.attrs, head_dim=m.rope_dim)
    key = g.rope(key, rotary.inv_freq, attrs, name="k_turned")
    q_rope = g.rope(q_rope, rotary.inv_freq, attrs, name="q_turned")
    down = d.weight(f"blk.{layer}.attn_k_b.weight", c.num_heads * m.kv_rank, m.nope_dim)
    q = g.head_linear(q_nope, down, c.num_heads, name="q_latent")
    g.latent_write(latent, key, LatentWriteAttrs(layer, m.kv_rank, m.rope_dim))
    scale = c.head_dim**-0.5 if c.attention_scale is None else c.attention_scale
    attend = LatentAttentionAttrs(layer, c.num_heads, m.kv_rank, m.rope_dim, scale)
    y = g.latent_attention(q, q_rope, attend)
    up = d.weight(f"blk.{layer}.attn_v_b.weight", c.num_heads * m.value_dim, m.kv_rank)
    y = g.head_linear(y, up, c.num_heads, name="values")
    return d.project(y, "attn_output", c.hidden_size)
