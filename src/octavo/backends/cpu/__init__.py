"""The native CPU backend: a graph becomes a flat program of fused regions over packed weights."""

from octavo.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
