"""A small GGUF writer that remembers where each header field lies, so that tests can damage it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.weights import SCHEMES

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B"}
_FORMATS |= {U64: "Q", I64: "q", F64: "d"}


@dataclass(frozen=True)
class Array:
    """An array value: element type and elements."""

    type: int
    items: list[Any]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to write. dims innermost first, as in the file; data None: zeros."""

    name: str
    dims: tuple[int, ...]
    scheme: str = "F32"
    data: bytes | None = None


@dataclass
class GgufImage:
    """The file's bytes and (name, offset, size) of every header field."""

    data: bytearray = field(default_factory=bytearray)
    fields: list[tuple[str, int, int]] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> None:
        self.fields.append((name, len(self.data), len(data)))
        self.data += data

    def number(self, name: str, fmt: str, value: float) -> None:
        self.put(name, struct.pack("<" + fmt, value))

    def string(self, name: str, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        self.number(f"{name} length", "Q", len(raw))
        self.put(f"{name} bytes", raw)

    def patched(self, name: str, data: bytes) -> bytes:
        """A copy of the file in which the field `name` begins with `data`."""
        offset = next(offset for field_name, offset, _ in self.fields if field_name == name)
        return bytes(self.data[:offset]) + data + bytes(self.data[offset + len(data) :])


def _put_value(image: GgufImage, name: str, kind: int, value: Any) -> None:
    if kind == STR:
        image.string(name, value)
    else:
        image.number(name, _FORMATS[kind], value)


def _put_entry(image: GgufImage, key: str, kind: int, value: Any) -> None:
    image.string(f"key {key}", key)
    if isinstance(value, Array):
        image.number(f"type {key}", "I", ARRAY)
        image.number(f"element type {key}", "I", value.type)
        image.number(f"array length {key}", "Q", len(value.items))
        for i, item in enumerate(value.items):
            _put_value(image, f"item {i} of {key}", value.type, item)
    else:
        image.number(f"type {key}", "I", kind)
        _put_value(image, f"value {key}", kind, value)


def write_gguf(
    metadata: dict[str, tuple[int, Any]],
    tensors: list[TensorSpec],
    *,
    version: int = 3,
    alignment: int = 32,
) -> GgufImage:
    """metadata: key -> (value type, value); for an Array value the type is ignored."""
    image = GgufImage()
    image.put("magic", b"GGUF")
    image.number("version", "I", version)
    image.number("tensor count", "Q", len(tensors))
    image.number("metadata count", "Q", len(metadata))
    for key, (kind, value) in metadata.items():
        _put_entry(image, key, kind, value)
    data = bytearray()
    for tensor in tensors:
        data += bytes(-len(data) % alignment)
        _put_info(image, tensor, len(data))
        size = SCHEMES[tensor.scheme].num_bytes(tensor.dims[::-1])
        data += bytes(size) if tensor.data is None else tensor.data
    if tensors:
        image.data += bytes(-len(image.data) % alignment) + data
    return image


def _put_info(image: GgufImage, tensor: TensorSpec, offset: int) -> None:
    name = tensor.name
    image.string(f"name {name}", name)
    image.number(f"n_dims {name}", "I", len(tensor.dims))
    for i, size in enumerate(tensor.dims):
        image.number(f"dim {i} {name}", "Q", size)
    image.number(f"tensor type {name}", "I", SCHEMES[tensor.scheme].ggml_type)
    image.number(f"offset {name}", "Q", offset)


def sample_gguf() -> GgufImage:
    """A small file with every value type and three tensors, 32-byte aligned."""
    rng = np.random.default_rng(0)
    metadata: dict[str, tuple[int, Any]] = {
        "general.architecture": (STR, "llama"),
        "general.alignment": (U32, 32),
        "test.u8": (U8, 200),
        "test.i8": (I8, -5),
        "test.u16": (U16, 60000),
        "test.i16": (I16, -600),
        "test.i32": (I32, -70000),
        "test.f32": (F32, 0.5),
        "test.bool": (BOOL, 1),
        "test.u64": (U64, 2**63),
        "test.i64": (I64, -(2**62)),
        "test.f64": (F64, 1e300),
        "test.floats": (ARRAY, Array(F32, [1.0, -2.5, 3.0])),
        "test.ints": (ARRAY, Array(I32, [1, -2])),
        "test.bools": (ARRAY, Array(BOOL, [1, 0])),
        "test.empty": (ARRAY, Array(STR, [])),
        "tokenizer.ggml.tokens": (ARRAY, Array(STR, ["a", "é", b"\xff\xfe", ""])),
    }
    tensors = [
        TensorSpec("token_embd.weight", (32, 4), "Q8_0", rng.bytes(4 * 34)),
        TensorSpec("output_norm.weight", (6,), "F32", rng.bytes(24)),
        TensorSpec("blk.0.attn_q.weight", (256, 2), "Q4_K", rng.bytes(288)),
    ]
    return write_gguf(metadata, tensors)


def split_files(name: str, count: int) -> dict[str, bytes]:
    """The files of a model split into `count` parts, each with a tensor "t<i>" of 4 floats."""
    files = {}
    for i in range(count):
        keys: dict[str, tuple[int, Any]] = (
            {"general.architecture": (STR, "llama")} if i == 0 else {}
        )
        keys |= {"split.no": (U16, i), "split.count": (U16, count)}
        keys["split.tensors.count"] = (I32, count)
        data = np.full(4, i, np.float32).tobytes()
        image = write_gguf(keys, [TensorSpec(f"t{i}", (4,), data=data)])
        files[f"{name}-{i + 1:05}-of-{count:05}.gguf"] = bytes(image.data)
    return files


def types_gguf() -> GgufImage:
    """A file with a tensor of random bytes of every type."""
    rng = np.random.default_rng(0)
    tensors = []
    for name, scheme in SCHEMES.items():
        columns = 256 if scheme.block_elems > 1 else 8
        data = rng.bytes(scheme.num_bytes((1, columns)))
        tensors.append(TensorSpec(name, (columns, 1), name, data))
    return write_gguf({}, tensors)


if __name__ == "__main__":  # python -m tests.support.gguf_file FOLDER: seeds for native/fuzz
    import sys
    from pathlib import Path

    Path(sys.argv[1], "seed.gguf").write_bytes(sample_gguf().data)
    Path(sys.argv[1], "types.gguf").write_bytes(types_gguf().data)
