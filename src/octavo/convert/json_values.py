"""Values of config.json that several families have."""

from __future__ import annotations

import numpy as np

from octavo.models import ModelConfig


def shortest(value: float) -> float:
    """The shortest decimal that is the same number in single precision: 1e-6, not 9.9999999e-7."""
    return float(str(np.float32(value)))


def layer_types(c: ModelConfig) -> list[str] | None:
    """Which layers slide; None where none does, or all."""
    if c.sliding_window is None or not c.sliding_layers:
        return None
    return ["sliding_attention" if slides else "full_attention" for slides in c.sliding_layers]
