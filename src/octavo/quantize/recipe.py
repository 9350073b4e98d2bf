"""Which tensor is written in which format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import InvalidParameterError
from octavo.weights import SCHEMES, Scheme, Tensor

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
"""The head decides each token: it gets more bits than the layers, and so does an embedding that is
the head as well."""
KEPT = ("position_embd.weight", "token_types.weight")
"""Small, and llama.cpp wants them in float32."""
KEPT_PARTS = ("ffn_gate_inp", "ffn_gate_inp_shexp", "attn_kv_b", "rope_freqs", "rope_factors")
"""Routers decide by small differences; others are divisors or are computed with."""


@dataclass(frozen=True)
class Recipe:
    """body: of the layers' matrices. tables: of an embedding that is the head as well. apart: of
    embedding and head where they are two tensors; None for both as `tables`. group: columns that
    share a scale, where that is not the format's own affair; rows that are no multiple of it are
    left in 16 bits then."""

    name: str
    body: str
    tables: str
    apart: tuple[str, str] | None = None
    group: int | None = None

    def wanted(self, name: str, apart: bool) -> str:
        """The format of a matrix, if it fits. apart: whether there are two tables."""
        if name not in (EMBEDDING, HEAD):
            return self.body
        return self.apart[name == HEAD] if apart and self.apart else self.tables


FOUR = ("Q4_K", "Q6_K")
"""An embedding is read a row at a time and its errors meet no others: four bits do."""
FIVE = ("Q4_K", "Q5_K")
"""With layers in five bits: together as large as a file of Q4_K_M."""


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("q4_0", "Q4_0", "Q6_K", FOUR),
        Recipe("q4_1", "Q4_1", "Q6_K", FIVE),
        Recipe("q5_0", "Q5_0", "Q6_K"),
        Recipe("q5_1", "Q5_1", "Q6_K"),
        Recipe("q8_0", "Q8_0", "Q8_0"),
        Recipe("q4_k", "Q4_K", "Q6_K", FOUR),
        Recipe("q5_k", "Q5_K", "Q6_K"),
        Recipe("q6_k", "Q6_K", "Q6_K"),
        Recipe("int4-g32", "Q4_1", "Q6_K", FIVE),
        Recipe("int4-g128", "Q4_0", "Q6_K", group=128),
        Recipe("int8", "Q8_0", "Q8_0"),
        Recipe("mxfp4", "MXFP4", "Q6_K", FOUR),
        Recipe("ternary", "TQ2_0", "Q6_K"),
        Recipe("mixed", "Q4_K", "Q6_K", FOUR),
    )
}
"""What a GGUF file gets by --scheme. "mixed" starts from this and chooses by measured errors."""

FOLDER_RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("int4-g32", "Q4_0", "F16", group=32),
        Recipe("int4-g128", "Q4_0", "F16", group=128),
        Recipe("int8", "Q8_0", "F16", group=32),
        Recipe("fp8", "F16", "F16"),
    )
}
"""What a Hugging Face folder gets. These are blocks first; `folder.py` says the same numbers as
compressed-tensors does. fp8 is rounded there."""

FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "TQ2_0": "Q4_0"}
"""For rows that are no multiple of 256, as llama.cpp does."""


def recipe_named(name: str, *, folder: bool = False) -> Recipe:
    """A scheme for a GGUF file or a folder. Raises InvalidParameterError listing the schemes."""
    known, other = (FOLDER_RECIPES, RECIPES) if folder else (RECIPES, FOLDER_RECIPES)
    if name in known:
        return known[name]
    hint = ""
    if name in other:
        hint = f"; {name} goes into " + ("a name ending in .gguf" if folder else "a folder")
    where = "a folder" if folder else "a GGUF file"
    raise InvalidParameterError("scheme", f"got {name!r}, {where} can be {', '.join(known)}{hint}")


def is_quantized(tensor: Tensor) -> bool:
    """Whether a tensor gets a quantized format at all: the matrices of products and tables."""
    name = tensor.name
    if name in KEPT or len(tensor.shape) < 2 or not name.endswith(".weight"):
        return False
    return not any(part in name.split(".") for part in KEPT_PARTS)


def scheme_of(tensor: Tensor, recipe: Recipe, chosen: Mapping[str, str], *, apart: bool) -> Scheme:
    """The format of a tensor. chosen: by name, before the recipe's own. apart: whether embedding
    and head are two tensors.

    Rows that a format cannot hold get the next one that can.
    """
    if not is_quantized(tensor):
        return SCHEMES["F32"]
    wanted = recipe.wanted(tensor.name, apart)
    if wanted == recipe.body and recipe.group and tensor.shape[-1] % recipe.group:
        return SCHEMES["F16"]
    return fitting(chosen.get(tensor.name, wanted), tensor.shape[-1])


def fitting(name: str, columns: int) -> Scheme:
    """The format itself or what takes its place for rows of so many columns."""
    while columns % SCHEMES[name].block_elems:
        name = FALLBACKS.get(name, "F16")
    return SCHEMES[name]
