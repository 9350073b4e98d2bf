"""Writes a GGUF file again with every weight in float32, so that llama.cpp can be a reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def widen(source: Path, target: Path) -> None:
    """gguf-py, llama.cpp's own library, reads and widens: nothing of Octavo is involved."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=element)
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        wide = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        writer.add_tensor(tensor.name, wide.reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
