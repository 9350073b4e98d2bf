"""From the hidden states of a text's tokens to one vector."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo.errors import InvalidParameterError

PoolingKind = Literal["mean", "last", "cls"]
POOLINGS: tuple[PoolingKind, ...] = get_args(PoolingKind)

Floats = NDArray[np.float32]


class Pooling(Struct, frozen=True):
    """kind: the mean of all tokens, the last one's state, or the first one's ("cls"); None leaves
    it to the model. dimensions: keep only so many leading numbers (Matryoshka embeddings).
    normalize: to length 1, after cutting; None leaves it to the model. Raises
    InvalidParameterError naming the field.
    """

    kind: PoolingKind | None = None
    dimensions: int | None = None
    normalize: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in POOLINGS:
            expected = ", ".join(POOLINGS)
            raise InvalidParameterError("pooling", f"got {self.kind!r}, expected {expected}")
        if self.dimensions is not None and not 0 < self.dimensions < 2**31:
            got = str(self.dimensions)[:40]
            raise InvalidParameterError("dimensions", f"got {got}, expected 1 or more")

    def check_width(self, width: int) -> None:
        """Raise InvalidParameterError if a model's states have fewer numbers than asked for."""
        if self.dimensions is not None and self.dimensions > width:
            message = f"got {self.dimensions}, but the model's embeddings have {width}"
            raise InvalidParameterError("dimensions", message)


class Pool:
    """Takes a text's hidden states in order, in pieces of any size; the result does not depend on
    the pieces."""

    def __init__(self, pooling: Pooling, kind: PoolingKind, normalize: bool = True) -> None:
        """kind and normalize: the model's, where `pooling` leaves them open."""
        self._dimensions, self._kind = pooling.dimensions, pooling.kind or kind
        self._normalize = normalize if pooling.normalize is None else pooling.normalize
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self._count = 0
        self._state: NDArray[np.float64] | None = None

    def add(self, rows: Floats) -> None:
        """The next tokens' states, [n, width]."""
        if self._kind == "mean":
            # One row after the other: numpy would add the rows of a large piece in another order.
            for row in rows:
                wide = row.astype(np.float64)
                self._state = wide if self._state is None else self._state + wide
        elif self._kind == "last":
            self._state = rows[-1].astype(np.float64)
        elif self._state is None:
            self._state = rows[0].astype(np.float64)
        self._count += len(rows)

    def result(self) -> Floats:
        """The embedding, [dimensions or width]."""
        assert self._state is not None, "a text has at least one token"
        state = self._state / self._count if self._kind == "mean" else self._state
        state = state[: self._dimensions]
        if self._normalize:
            length = float(np.sqrt(np.dot(state, state)))
            state = state / length if length > 0 else state
        return state.astype(np.float32)
