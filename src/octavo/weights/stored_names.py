"""Tensor names the other way: from the canonical ones to those of Hugging Face files."""

from __future__ import annotations

import re

from octavo.weights.names import FAMILIES
from octavo.weights.naming import FamilyNames

_CANONICAL_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,4})\.(.+)\.(weight|bias)")


def stored_name(canonical: str, model_type: str) -> str | None:
    """What a Hugging Face file of this family calls a tensor; None for what it does not hold.

    model_type: a key of FAMILIES.
    """
    family = FAMILIES[model_type]
    usual = next((name for name, known in family.top.items() if known == canonical), None)
    if usual is None:
        match = _CANONICAL_LAYER.fullmatch(canonical)
        paths = {known: path for path, known in family.layer.items()}
        if match is None or match[2] not in paths:
            return None
        usual = f"model.layers.{match[1]}.{paths[match[2]]}.{match[3]}"
    return _as_stored(usual, family)


def _as_stored(usual: str, family: FamilyNames) -> str:
    """A usual name by the family's own spelling: what `_usual` undoes."""
    for own, new in family.rename:
        if usual.startswith(new):
            renamed = own + usual.removeprefix(new)
            break
    else:
        renamed = usual
    return renamed if usual.startswith("lm_head.") else family.strip + renamed
