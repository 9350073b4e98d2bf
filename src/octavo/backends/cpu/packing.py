"""Filling the planned matrices from a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from octavo._native import Executor
from octavo.weights.tensor import Checkpoint, DerivedTensor, Tensor


def pack_weights(
    executor: Executor, checkpoint: Checkpoint, tensors: Sequence[tuple[int, Tensor]]
) -> None:
    """Pack (matrix, tensor) pairs. Views of files go at once, on all threads. Derived tensors are
    made a few at a time, one a thread, so that only those few exist twice."""
    views = [(m, t) for m, t in tensors if not isinstance(t, DerivedTensor)]
    mapped = checkpoint.is_mapped
    executor.pack([(matrix, t.data, mapped(t)) for matrix, t in views])
    derived = iter([(m, t) for m, t in tensors if isinstance(t, DerivedTensor)])
    with ThreadPoolExecutor(executor.num_threads) as pool:
        for batch in _batches(derived, executor.num_threads):
            made = pool.map(lambda pair: (pair[0], pair[1].data, False), batch)
            executor.pack(list(made))
            for _, tensor in batch:
                checkpoint.release(tensor)


def _batches(
    pairs: Iterator[tuple[int, DerivedTensor]], size: int
) -> Iterator[list[tuple[int, DerivedTensor]]]:
    while batch := list(islice(pairs, size)):
        yield batch
