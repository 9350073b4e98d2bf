"""Rotary frequencies: computed once in float64 from a RopeConfig, kept in the graph as constants.

Sources: Su et al. 2021 (RoPE), Chen et al. 2023 (linear), Peng et al. 2023 (YaRN), the Llama 3.1
model card's piecewise rule ("llama3"), Ding et al. 2024 ("longrope").
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UnsupportedError
from octavo.models.config import RopeConfig

Frequencies = NDArray[np.float64]


def inverse_frequencies(
    rope: RopeConfig, factors: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """[rotary_dim / 2] radians per token. `factors` (longrope's, or a GGUF's rope_freqs.weight)
    divide them."""
    exponents = np.arange(0, rope.rotary_dim, 2, dtype=np.float64) / rope.rotary_dim
    base = rope.base**-exponents
    if factors is not None:
        return (base / factors.astype(np.float64)).astype(np.float32)
    scale = _SCALINGS.get(rope.scaling)
    if scale is None:
        known = ", ".join(sorted(_SCALINGS))
        raise UnsupportedError(f"rope scaling: got '{rope.scaling}', expected one of {known}")
    return scale(base, rope).astype(np.float32)


def magnitude(rope: RopeConfig) -> float:
    """What sin and cos are multiplied by: the attention factor of YaRN and longrope, else 1."""
    if rope.scaling not in ("yarn", "longrope"):
        return 1.0
    given = rope.params.get("attention_factor")
    if given is not None:
        return given
    factor = rope.params["factor"]
    if factor <= 1:
        return 1.0
    if rope.scaling == "yarn":
        scales = [rope.params.get(key) for key in ("mscale", "mscale_all_dim")]
        if scales[0] and scales[1]:  # DeepSeek's: scores get the second one's square
            return yarn_magnitude(factor, scales[0]) / yarn_magnitude(factor, scales[1])
        return yarn_magnitude(factor)
    return math.sqrt(1 + math.log(factor) / math.log(rope.params["original_context"]))


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's attention factor for contexts stretched by `factor` (Peng et al. 2023, eq. 22)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def yarn_weight(rope: RopeConfig, scale: float | None, head_dim: int) -> float | None:
    """The `weight` whose magnitude, squared, an attention scale has above head_dim ** -0.5; None
    where there is none. What DeepSeek's config.json calls mscale_all_dim."""
    factor = rope.params.get("factor", 1.0)
    if rope.scaling != "yarn" or scale is None or factor <= 1:
        return None
    weight = (math.sqrt(scale * math.sqrt(head_dim)) - 1.0) / (0.1 * math.log(factor))
    return weight if weight > 1e-9 else None


def _none(base: Frequencies, rope: RopeConfig) -> Frequencies:
    return base


def _linear(base: Frequencies, rope: RopeConfig) -> Frequencies:
    return base / rope.params["factor"]


def _llama3(base: Frequencies, rope: RopeConfig) -> Frequencies:
    """Short waves stay, long ones are stretched by `factor`, between them a linear blend."""
    p = rope.params
    turns = p["original_context"] * base / (2 * math.pi)  # turns within the trained context
    blend = (turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
    keep = np.clip(blend, 0.0, 1.0)
    return keep * base + (1 - keep) * base / p["factor"]


def _yarn(base: Frequencies, rope: RopeConfig) -> Frequencies:
    """Dimensions turning more than beta_fast times stay, fewer than beta_slow are stretched."""
    p = rope.params

    def dim_of(turns: float) -> float:
        wavelength = p["original_context"] / (turns * 2 * math.pi)
        return rope.rotary_dim * math.log(wavelength) / (2 * math.log(rope.base))

    fast, slow = dim_of(p.get("beta_fast", 32.0)), dim_of(p.get("beta_slow", 1.0))
    if p.get("truncate", 1.0):  # gpt-oss alone blends over a range of parts of dimensions
        fast, slow = math.floor(fast), math.ceil(slow)
    low, high = max(fast, 0), min(slow, rope.rotary_dim - 1)
    ramp = (np.arange(len(base)) - low) / max(high - low, 0.001)
    stretched = np.clip(ramp, 0.0, 1.0).astype(np.float64)
    blended: Frequencies = stretched * base / p["factor"] + (1 - stretched) * base
    return blended


_SCALINGS = {"none": _none, "linear": _linear, "llama3": _llama3, "yarn": _yarn}
