"""Whether two checkpoints say the same model: what makes a conversion an equivalence.

What is about to be written is read back by the usual readers before a byte of it is; a setting that
the other format cannot say is thus an error, never a silent change of the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.convert.conventions import conventions_of
from octavo.convert.sentence_files import lost_settings
from octavo.errors import UnsupportedError
from octavo.models import EncoderConfig, ModelConfig, RopeConfig, config_from
from octavo.models.rope import inverse_frequencies, magnitude
from octavo.records import replace
from octavo.weights import Checkpoint, Tensor, dequantize

_OTHERWISE = ("architecture", "name", "rope", "rope_local", "norm_unit_offset", "eos_token_ids")
"""Fields that are compared in another way, or that the formats spell differently."""
TOLERANCE = 1e-6
"""GGUF's real numbers are single precision."""


def prove_same(before: Checkpoint, after: Checkpoint) -> None:
    """Raise UnsupportedError naming every setting that `after` would not keep."""
    old, new = config_from(before), config_from(after)
    lost = [
        f"{name}: {getattr(old, name)!r:.80} would become {getattr(new, name)!r:.80}"
        for name in ModelConfig.__struct_fields__
        if name not in _OTHERWISE and not _close(_value(old, name), _value(new, name))
    ]
    lost += lost_settings(before, after, old)
    formats = conventions_of(old, before)
    if not formats.pairs and old.rope.interleaved != new.rope.interleaved:
        lost.append("rope: other elements of a head would be rotated together")
    if formats.architecture != conventions_of(new, after).architecture:
        lost.append(f"architecture: {old.architecture} would become {new.architecture}")
    lost += [
        f"{kind}: rotary frequencies would change"
        for kind in ("rope", "rope_local")
        if not _same_rope(_rope(old, kind), before, _rope(new, kind), after)
    ]
    if lost:
        raise UnsupportedError(
            f"convert: {before.path}: the other format cannot say all of this model;"
            f" {'; '.join(lost)}"
        )


def _value(config: ModelConfig, name: str) -> Any:
    """A field, with what is the same written the same way."""
    if name == "attention_scale":
        return config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
    if name == "sliding_layers":
        return tuple(config.window_of(i) is not None for i in range(config.num_layers))
    if name == "ropeless_layers":
        return tuple(not config.rotates(i) for i in range(config.num_layers))
    if name == "encoder" and config.encoder is not None:
        return _read_of(config.encoder)
    if name == "bos_token_id" and config.encoder is not None:
        return None  # begins a text by the tokenizer alone
    if name == "mixture" and config.mixture is not None:
        dense = tuple(not config.mixture.in_layer(i) for i in range(config.num_layers))
        return replace(config.mixture, dense_layers=dense)
    return getattr(config, name)


def _read_of(encoder: EncoderConfig) -> EncoderConfig:
    """What has an effect: of heads only where there are labels. Rows of positions that belong to
    padding are cut away in GGUF."""
    if encoder.num_labels:
        return replace(encoder, position_offset=0)
    return EncoderConfig(num_types=encoder.num_types)


def _close(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= TOLERANCE * max(abs(old), abs(new))
    return bool(old == new)


def _rope(config: ModelConfig, kind: str) -> RopeConfig:
    return config.rope if kind == "rope" else config.rope_local or config.rope


def _same_rope(old: RopeConfig, before: Checkpoint, new: RopeConfig, after: Checkpoint) -> bool:
    if old.rotary_dim != new.rotary_dim or not _close(magnitude(old), magnitude(new)):
        return False
    pairs = zip(_frequencies(old, before), _frequencies(new, after), strict=True)
    return all(np.allclose(a, b, rtol=1e-5, atol=0) for a, b in pairs)


def _frequencies(rope: RopeConfig, checkpoint: Checkpoint) -> list[NDArray[np.float32]]:
    """For contexts up to the trained one and beyond it; the same, except for longrope."""
    if rope.scaling == "longrope":
        listed = {"short": rope.short_factors, "long": rope.long_factors}
        return [
            inverse_frequencies(rope, _factors(checkpoint, f"rope_factors_{kind}.weight", known))
            for kind, known in listed.items()
        ]
    same = inverse_frequencies(rope, _factors(checkpoint, "rope_freqs.weight", ()))
    return [same, same]


def _factors(
    checkpoint: Checkpoint, name: str, known: tuple[float, ...]
) -> NDArray[np.float32] | None:
    tensor: Tensor | None = checkpoint.tensors.get(name)
    if known:
        return np.array(known, np.float32)
    return dequantize(tensor) if tensor is not None else None
