"""Backends: a graph and its weights -> an executable. `get_backend` is the door.

    reference   NumPy in float32; slow and plain; defines every operator
    cpu         native code; the one to use
    null        runs the pipeline without computing, for tests

Each is imported when it is asked for.
"""

from importlib import import_module

from octavo.backends.base import (
    Backend,
    BackendOptions,
    Executable,
    MemoryPlan,
    Step,
)
from octavo.errors import BackendError

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendOptions",
    "Executable",
    "MemoryPlan",
    "Step",
    "get_backend",
]

BACKENDS: dict[str, tuple[str, str]] = {
    "cpu": ("octavo.backends.cpu", "CpuBackend"),
    "reference": ("octavo.backends.reference", "ReferenceBackend"),
    "null": ("octavo.backends.null", "NullBackend"),
}
"""Module and class by name."""


def get_backend(name: str) -> Backend:
    """A backend by name. Raises BackendError listing the known names."""
    if name not in BACKENDS:
        raise BackendError(f"backends: no '{name}'; known: {', '.join(sorted(BACKENDS))}")
    module, cls = BACKENDS[name]
    backend: Backend = getattr(import_module(module), cls)()
    return backend
