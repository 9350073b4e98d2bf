"""Octavo: a large-language-model inference framework."""

__version__ = "0.1.0"
