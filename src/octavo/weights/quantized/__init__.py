"""Quantized safetensors: config.json says how (`quantization_config`), the file holds the parts.

A quantized weight lies in several tensors (packed integers, scales, zero points). Together they
become one tensor that is made when a backend packs it: as blocks that native kernels read where one
of them holds the numbers exactly, else as 16-bit floats. `table.py` says which.
"""

from octavo.weights.quantized.assemble import assemble, has_quantization, summary

__all__ = ["assemble", "has_quantization", "summary"]
