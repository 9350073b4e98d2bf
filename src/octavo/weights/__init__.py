"""Models on disk: where they come from, how they are read, how their numbers are stored.

`resolve` turns a name into a path, `open_checkpoint` turns a path into a lazy table of tensors,
`dequantize` turns a tensor into float32.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.weights.checkpoint import open_checkpoint
    from octavo.weights.demo import DEMO_MODELS
    from octavo.weights.expand import dequantize
    from octavo.weights.inspect import Inspection, inspect_model
    from octavo.weights.scheme import SCHEMES, Scheme
    from octavo.weights.sources import resolve
    from octavo.weights.tensor import Checkpoint, Tensor

__all__ = [
    "DEMO_MODELS",
    "SCHEMES",
    "Checkpoint",
    "Inspection",
    "Scheme",
    "Tensor",
    "dequantize",
    "inspect_model",
    "open_checkpoint",
    "resolve",
]

_HOMES = {
    "DEMO_MODELS": "demo",
    "SCHEMES": "scheme",
    "Checkpoint": "tensor",
    "Inspection": "inspect",
    "Scheme": "scheme",
    "Tensor": "tensor",
    "dequantize": "expand",
    "inspect_model": "inspect",
    "open_checkpoint": "checkpoint",
    "resolve": "sources",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"octavo.weights.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'octavo.weights' has no attribute '{name}'")
