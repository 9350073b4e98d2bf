"""The table of quantized safetensors: which methods are read, and what each becomes.

| method | stored | becomes |
|---|---|---|
| awq | 4-bit integers, zero points, half scales a group | Q4_Z, exactly |
| gptq, sym | 2, 3, 4 or 8-bit integers, half scales a group | Q4_0 (2, 3, 4 bits), Q8_0, exactly |
| gptq, not sym | the same and zero points | Q4_0 (2, 3 bits), Q4_Z (4), Q8_Z (8), exactly |
| gptq, desc_act | the same, columns of a group spread over the row | the same, columns reordered |
| compressed-tensors pack-quantized | 2 to 8-bit integers | as gptq |
| compressed-tensors int-quantized | int8 | Q8_0 (symmetric), Q8_Z |
| compressed-tensors float-quantized, fp8, fbgemm_fp8 | e4m3; e5m2 floats | E4M3; E5M2, exactly |
| compressed-tensors nvfp4-pack-quantized | e2m1 floats, e4m3 scales of 16 | NVFP4 |
| bitsandbytes, 4 bits | nf4 or fp4 codes, a scale for 64 | NF4, FP4, values rounded |
| bitsandbytes, 8 bits | int8, a scale a row | Q8_0 |
| bitnet | -1, 0 and 1 in two bits, a scale a matrix | TQ2_0, exactly |
| mxfp4, compressed-tensors mxfp4-pack-quantized | e2m1, powers of two of 32 | MXFP4, exactly |

Q4_Z and Q8_Z: for 128 columns (Q4_Z128, Q8_Z128) where groups are multiples of that, else for 32.
E4M3 likewise: E4M3_32 where blocks are multiples of 32 columns only.

"Exactly": the integers are kept, and the scales are in half precision as in the file. A scale that
the file has in bfloat16 or float32 is rounded to half precision (1 part in 2048 at most, above
6e-5); F16 rounds each weight likewise. Groups that are no multiple of 32 columns become F16, rows
of -1, 0 and 1 that are no multiple of 256 become Q4_0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from octavo.weights.quantized import awq, bitnet, bitsandbytes, compressed, fp8, gptq, mxfp4
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.parts import Module
from octavo.weights.tensor import DerivedTensor


class Method(Protocol):
    """One way of storing quantized weights, as a config describes it.

    endings: of the names of a weight's parts; `result`: of the weight's own name. marks: those of
    `endings` that show a module to be quantized.
    """

    @property
    def endings(self) -> tuple[str, ...]: ...
    @property
    def marks(self) -> tuple[str, ...]: ...
    @property
    def result(self) -> str: ...

    def weight(self, module: Module) -> DerivedTensor:
        """Checks the parts' dtypes and shapes; the numbers are read later."""
        ...


METHODS: Mapping[str, Callable[[Fields], Method]] = {
    "awq": awq.read,
    "gptq": gptq.read,
    "compressed-tensors": compressed.read,
    "fp8": fp8.read,
    "fbgemm_fp8": fp8.read_fbgemm,
    "bitsandbytes": bitsandbytes.read,
    "mxfp4": mxfp4.read,
    "bitnet": bitnet.read,
}
"""By quant_method. Each reads the config and refuses what it does not know."""
