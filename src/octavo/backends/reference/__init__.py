"""The reference backend: NumPy in float32, plain and slow. It defines what operators mean."""

from octavo.backends.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
