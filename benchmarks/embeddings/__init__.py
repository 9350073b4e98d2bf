"""Texts embedded a second, beside transformers on PyTorch, on one made model."""
