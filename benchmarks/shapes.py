"""The weight matrices that the demo models multiply by, and those of a ternary one."""

from __future__ import annotations

from typing import NamedTuple

# GGUF's ids of the types in use, and the bits of their packed elements.
TYPE_IDS = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "TQ2_0": 35}
BITS = {name: 4 if name == "TQ2_0" else int(name[1]) for name in TYPE_IDS}
"""Elements of 2 bits are multiplied as those of 4 are."""


class Shape(NamedTuple):
    """One weight matrix of a demo model: [n, k] of a GGUF type."""

    model: str
    name: str
    type: str
    n: int
    k: int


SHAPES = [
    Shape("smollm2", "q, o", "Q4_1", 576, 576),
    Shape("smollm2", "k, v", "Q4_1", 192, 576),
    Shape("smollm2", "gate, up", "Q4_1", 1536, 576),
    Shape("smollm2", "down", "Q4_1", 576, 1536),
    Shape("smollm2", "head", "Q8_0", 49152, 576),
    Shape("gemma3", "q", "Q5_0", 1024, 640),
    Shape("gemma3", "k, v", "Q5_0", 256, 640),
    Shape("gemma3", "v", "Q8_0", 256, 640),
    Shape("gemma3", "o", "Q4_K", 640, 1024),
    Shape("gemma3", "gate, up", "Q5_0", 2048, 640),
    Shape("gemma3", "down", "Q4_K", 640, 2048),
    Shape("gemma3", "down", "Q6_K", 640, 2048),
    Shape("gemma3", "head", "Q8_0", 262144, 640),
    Shape("qwen", "q, o", "Q4_K", 1536, 1536),
    Shape("qwen", "k, v", "Q4_K", 256, 1536),
    Shape("qwen", "v", "Q6_K", 256, 1536),
    Shape("qwen", "gate, up", "Q4_K", 8960, 1536),
    Shape("qwen", "down", "Q4_K", 1536, 8960),
    Shape("qwen", "down", "Q6_K", 1536, 8960),
    Shape("qwen", "head", "Q6_K", 151936, 1536),
    # BitNet b1.58 2B, and the same in 4 bits to compare with.
    Shape("bitnet", "q, o", "TQ2_0", 2560, 2560),
    Shape("bitnet", "gate, up", "TQ2_0", 6912, 2560),
    Shape("bitnet", "down", "TQ2_0", 2560, 6912),
    Shape("bitnet", "q, o", "Q4_0", 2560, 2560),
    Shape("bitnet", "gate, up", "Q4_0", 6912, 2560),
    Shape("bitnet", "down", "Q4_0", 2560, 6912),
]
