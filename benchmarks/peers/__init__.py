"""Octavo beside its rivals: same weights, same threads, repetitions interleaved."""
