"""Storage schemes: how a tensor's numbers lie in memory. Ids and block sizes are GGUF's."""

from __future__ import annotations

from msgspec import Struct


class Scheme(Struct, frozen=True):
    """block_elems elements take block_bytes bytes, along the innermost dimension.

    native: a backend may compute with it; otherwise it is known by name only. In which form is in
    kept.py.
    """

    name: str
    ggml_type: int
    block_elems: int
    block_bytes: int
    native: bool

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape; its innermost size must be a multiple of the block."""
        count = 1
        for size in shape:
            count *= size
        return count // self.block_elems * self.block_bytes


# name, GGML type id, elements of a block, bytes of a block. Ids 4, 5, 31-33 and 36-38 were types
# once and are in no file that current tools write.
_TYPES = (
    ("F32", 0, 1, 4),
    ("F16", 1, 1, 2),
    ("Q4_0", 2, 32, 18),
    ("Q4_1", 3, 32, 20),
    ("Q5_0", 6, 32, 22),
    ("Q5_1", 7, 32, 24),
    ("Q8_0", 8, 32, 34),
    ("Q8_1", 9, 32, 40),
    ("Q2_K", 10, 256, 84),
    ("Q3_K", 11, 256, 110),
    ("Q4_K", 12, 256, 144),
    ("Q5_K", 13, 256, 176),
    ("Q6_K", 14, 256, 210),
    ("Q8_K", 15, 256, 292),
    ("IQ2_XXS", 16, 256, 66),
    ("IQ2_XS", 17, 256, 74),
    ("IQ3_XXS", 18, 256, 98),
    ("IQ1_S", 19, 256, 50),
    ("IQ4_NL", 20, 32, 18),
    ("IQ3_S", 21, 256, 110),
    ("IQ2_S", 22, 256, 82),
    ("IQ4_XS", 23, 256, 136),
    ("I8", 24, 1, 1),
    ("I16", 25, 1, 2),
    ("I32", 26, 1, 4),
    ("I64", 27, 1, 8),
    ("F64", 28, 1, 8),
    ("IQ1_M", 29, 256, 56),
    ("BF16", 30, 1, 2),
    ("TQ1_0", 34, 256, 54),
    ("TQ2_0", 35, 256, 66),
    ("MXFP4", 39, 32, 17),
    ("NVFP4", 40, 64, 36),
    ("Q1_0", 41, 128, 18),
)

_REFUSED = frozenset({"Q8_1"})  # of activations alone; tools disagree about its size

SCHEMES: dict[str, Scheme] = {
    name: Scheme(name, ggml_type, elems, size, name not in _REFUSED)
    for name, ggml_type, elems, size in _TYPES
}
"""Every known scheme by name."""

_MADE = (
    ("E4M3", 1010, 32, 36),
    ("NVFP4_D", 1011, 32, 22),
    ("Q4_Z", 1012, 32, 19),
    ("Q4_Z128", 1013, 32, 20),
    ("Q8_Z128", 1014, 32, 36),
    ("NF4", 1015, 32, 18),
    ("FP4", 1016, 32, 18),
    ("Q8_Z", 1017, 32, 36),
    ("E4M3_32", 1018, 32, 36),
    ("E5M2", 1019, 32, 36),
)
MADE_SCHEMES: dict[str, Scheme] = {
    name: Scheme(name, kind, elems, size, native=True) for name, kind, elems, size in _MADE
}
"""Schemes that no file has: what quantized safetensors become for backends. native/kernels/panel.h
tells of their blocks."""

SCHEMES_BY_TYPE: dict[int, Scheme] = {
    scheme.ggml_type: scheme for scheme in (*SCHEMES.values(), *MADE_SCHEMES.values())
}
"""Every known scheme by GGML type id, and those that no file has by ids of their own."""

BLOCK_SIZES: dict[int, tuple[int, int]] = {
    scheme.ggml_type: (scheme.block_elems, scheme.block_bytes) for scheme in SCHEMES.values()
}
"""GGML type id -> (elements, bytes) of a block: what the native reader checks sizes with."""


def native_names() -> tuple[str, ...]:
    """Names of the schemes that backends compute with, in GGUF's order."""
    return tuple(scheme.name for scheme in SCHEMES.values() if scheme.native)
