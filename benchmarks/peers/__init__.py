"""Octavo beside llama.cpp: same file, same threads, repetitions interleaved."""
