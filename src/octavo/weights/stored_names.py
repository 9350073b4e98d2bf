"""Tensor names the other way: from the canonical ones to those of Hugging Face files."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.weights.naming import FamilyNames

_CANONICAL_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,4})\.(.+)\.(weight|bias)")
_EXPERT = re.compile(r"(.+)\.(0|[1-9][0-9]{0,4})")


_HEADS = ("lm_head.", "classifier.", "pre_classifier.", "head.")
"""What lies beside a model inside a model with a head."""


def stored_by(
    family: FamilyNames, canonical: str, others: Collection[str] = (), *, bare: bool = False
) -> str | None:
    """What a Hugging Face file of this family calls a tensor; None for what it does not hold.

    others: canonical names of the model's tensors. bare: the file is of the model without a head.
    """
    usual = next((name for name, known in family.top.items() if known == canonical), None)
    if usual is None:
        match = _CANONICAL_LAYER.fullmatch(canonical)
        inside = _inside(family, match[2], match[3], f"blk.{match[1]}", others) if match else None
        if match is None or inside is None:
            return None
        usual = f"model.layers.{match[1]}.{inside}"
    return _as_stored(usual, family, bare)


def _inside(
    family: FamilyNames, name: str, kind: str, layer: str, others: Collection[str]
) -> str | None:
    """A path inside a layer, for a canonical name inside it. kind: "weight" or "bias"."""
    for path, known in family.plain.items():
        if known == f"{name}.{kind}":
            return path
    paths = [path for path, known in family.layer.items() if known == name]
    if paths:
        beside = [p for p in paths if f"{layer}.{family.beside.get(p)}.weight" in others]
        plain = [p for p in paths if p not in family.beside]
        return f"{(beside or plain)[0]}.{kind}"
    expert = _EXPERT.fullmatch(name)
    for path, known in family.experts.items():
        if expert and known == expert[1]:
            return f"{path.replace('*', expert[2])}.{kind}"
    return None


def _as_stored(usual: str, family: FamilyNames, bare: bool) -> str:
    """A usual name by the family's own spelling: what `_usual` undoes."""
    for own, new in family.rename:
        if usual.startswith(new):
            renamed = own + usual.removeprefix(new)
            break
    else:
        renamed = usual
    return renamed if bare or usual.startswith(_HEADS) else family.strip + renamed
