"""Octavo's server beside others: same weights, same threads, same load, repetitions interleaved."""
