"""Which backends are judged, in which modes, and how far each may be from the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from octavo.backends import get_backend
from octavo.backends.testing import random_tensor, run_op
from octavo.graph import LatentAttentionAttrs, Op
from octavo.weights import Tensor
from tests.backend.cases import CASES, QUANTIZED, Case


@dataclass(frozen=True)
class Mode:
    """A backend, how it holds weights and the KV cache, and how it multiplies quantized weights.

    declines: ids of cases that it may refuse, with the reason. A refusal that is not listed fails,
    and so does a listed case that runs: the list can only shrink unnoticed.
    """

    backend: str
    weights: str
    kv_dtype: str
    declines: Mapping[str, str] = field(default_factory=dict)
    products: str = "auto"

    @property
    def id(self) -> str:
        products = "" if self.products == "auto" else f"-{self.products}-products"
        return f"{self.backend}-{self.weights}-{self.kv_dtype}{products}"


_CPU_DECLINES = {
    f"attention-blocks-of-{size}": "its attention kernels are written for blocks of 32 tokens"
    for size in (1, 8)
}

_INT8_DECLINES = _CPU_DECLINES | {
    case.id: "latents and their keys are kept in int8 in multiples of 32"
    for case in CASES
    if isinstance(case.attrs, LatentAttentionAttrs)
    and (case.attrs.latent_dim % 32 or case.attrs.rope_dim % 32)
}

MODES = (
    Mode("cpu", "float", "f32", _CPU_DECLINES),
    Mode("cpu", "native", "f16", _CPU_DECLINES),
    Mode("cpu", "native", "bf16", _CPU_DECLINES),
    Mode("cpu", "native", "int8", _INT8_DECLINES),
)

BF16_MODE = Mode("cpu", "native", "bf16", products="bf16")
"""Where there are such products; for cases that have some."""
PRODUCTS = (Op.LINEAR, Op.HEAD_LINEAR, Op.EXPERTS)

_BF16_OPERANDS = 0.03
"""Both operands of a product rounded to bf16, to 2^-9 of themselves: as below, half of it."""
_INT8_ACTIVATIONS = 0.06
"""What rounding rows to int8 in groups of 32 may do to one element of a product: a step of 1/60 of
the group's spread is 0.6 % of an element, six deviations of that, and output rows whose random
scales are well above the average the result is measured by."""
_THREE_PRODUCTS = 3
"""An expert multiplies the results of two rounded products, rounds that and multiplies again."""
_KV_ROUNDING = {"f32": 0.0, "f16": 6e-3, "bf16": 8e-2, "int8": 0.15}
"""Keys and values are stored rounded; with bf16, queries and probabilities may be rounded too.

int8: a code is 1/127 of a key's largest number, about three deviations, so rounding adds 0.7 % of a
deviation to each number. Queries and probabilities may be rounded as coarsely, and a mean of many
values is small beside the errors of its terms: twice as much as bf16 is allowed.
"""
_WEIGHT_ROUNDING = 1e-2
"""Backends may keep F32 and F16 matrices in bfloat16 only with weights="native"."""


def tolerance(case: Case, mode: Mode) -> float:
    """Largest error as a share of the reference's root mean square."""
    if case.op in (Op.ATTENTION, Op.LATENT_ATTENTION):
        return case.tolerance + _KV_ROUNDING[mode.kv_dtype] * max(1.0, case.size**2)
    rounded = _BF16_OPERANDS if mode.products == "bf16" else _INT8_ACTIVATIONS
    if case.op is Op.EXPERTS and mode.weights == "native" and case.scheme in QUANTIZED:
        return _THREE_PRODUCTS * rounded
    if case.op in PRODUCTS and mode.weights == "native":
        return rounded if case.scheme in QUANTIZED else _WEIGHT_ROUNDING
    return case.tolerance


def inputs_of(case: Case) -> list[np.ndarray | Tensor]:
    """Operands from the case's seed."""
    rng = np.random.default_rng(case.seed)
    if case.op is Op.EMBED:
        (count,), shape = case.shapes
        ids = rng.integers(0, shape[0], count)
        return [ids, random_tensor("table", case.scheme, shape, case.seed)]
    if case.op is Op.EXPERTS:
        return _experts_inputs(case, rng)
    arrays = [rng.normal(0, case.size, shape).astype(np.float32) for shape in case.shapes]
    if case.op in (Op.LINEAR, Op.HEAD_LINEAR):
        weight = random_tensor("weight", case.scheme, case.shapes[1], case.seed + 1)
        return [arrays[0], weight, *arrays[2:]]
    if case.op is Op.EMBED_TYPES:
        return [arrays[0], random_tensor("table", case.scheme, case.shapes[1], case.seed)]
    if case.op is Op.ROPE:
        pairs = case.shapes[1][0]
        return [arrays[0], (10000.0 ** -(np.arange(pairs) / pairs)).astype(np.float32)]
    if case.op is Op.EMBED_POSITIONS:
        return [random_tensor("table", case.scheme, case.shapes[0], case.seed)]
    if case.op in (Op.RMS_NORM, Op.LAYER_NORM):
        return [arrays[0], *(rng.normal(0.5, 0.5, s).astype(np.float32) for s in case.shapes[1:])]
    return list(arrays)


def _experts_inputs(case: Case, rng: np.random.Generator) -> list[np.ndarray | Tensor]:
    """Each row chooses different experts, with weights of either sign."""
    x, (rows, chosen), *weights = case.shapes[:5]
    ids = np.stack([rng.permutation(weights[0][0])[: chosen // 2] for _ in range(rows)])
    routes = np.concatenate([ids, rng.uniform(-1, 1, ids.shape)], axis=1).astype(np.float32)
    matrices = [
        random_tensor(f"weight{i}", case.scheme, shape, case.seed + i)
        for i, shape in enumerate(weights)
    ]
    biases = [rng.normal(0, 1, shape).astype(np.float32) for shape in case.shapes[5:]]
    return [rng.normal(0, case.size, x).astype(np.float32), routes, *matrices, *biases]


def run_case(
    case: Case, backend: str, weights: str, kv_dtype: str, products: str = "auto"
) -> np.ndarray:
    """The case's result on a backend."""
    return run_op(
        get_backend(backend),
        case.op,
        inputs_of(case),
        case.attrs,
        case.layout,
        weights=weights,
        kv_dtype=kv_dtype,
        products=products,
    )


def expected_result(case: Case) -> np.ndarray:
    """What the reference gives, in float32 throughout."""
    return run_case(case, "reference", "native", "f32")


def error_of(case: Case, got: np.ndarray, expected: np.ndarray) -> float:
    """The largest error; infinite where rows are routed to other experts, or in another order."""
    if case.op is not Op.ROUTE:
        return largest_error(got, expected)
    chosen = expected.shape[1] // 2
    same = np.array_equal(got[:, :chosen], expected[:, :chosen])
    return largest_error(got[:, chosen:], expected[:, chosen:]) if same else float("inf")


def largest_error(got: np.ndarray, expected: np.ndarray) -> float:
    """As a share of the root mean square of `expected`."""
    size = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64))))
    return float(np.abs(got.astype(np.float64) - expected).max()) / max(size, 1e-30)
