"""A harness for tests of backends: sequences over shuffled blocks, and one operator at a time."""

from octavo.backends.testing.operator import Layout, run_op
from octavo.backends.testing.sequences import PagedSequences, run_greedy, run_tokens
from octavo.backends.testing.tensors import float_tensor, random_tensor

__all__ = [
    "Layout",
    "PagedSequences",
    "float_tensor",
    "random_tensor",
    "run_greedy",
    "run_op",
    "run_tokens",
]
