"""Malformed GGUF files: each gives an error that names the field, and none hurts the process."""

from __future__ import annotations

import itertools
import random
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import FormatError, ModelError
from octavo.weights import dequantize, open_checkpoint
from tests.support.gguf_file import (
    ARRAY,
    STR,
    U32,
    Array,
    GgufImage,
    TensorSpec,
    sample_gguf,
    write_gguf,
)


class Reader:
    """Opens images from files of ever new names: a mapped file must not change beneath."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def read_all(self, data: bytes | bytearray) -> None:
        """Open the file and touch everything in it. Raises ModelError or nothing."""
        path = self._folder / f"{next(self._numbers)}.gguf"
        path.write_bytes(data)
        try:
            checkpoint = open_checkpoint(path)
            for value in checkpoint.metadata.values():
                str(value)
            for tensor in checkpoint.tensors.values():
                assert tensor.data.nbytes == tensor.scheme.num_bytes(tensor.shape)
                int(tensor.data.sum(dtype=np.int64))
                if tensor.scheme.native:
                    assert dequantize(tensor).shape == tensor.shape
        finally:
            path.unlink()

    def survives(self, data: bytes | bytearray) -> bool:
        """True if the file opened, False if it was refused as it should be."""
        try:
            self.read_all(data)
        except ModelError:
            return False
        return True


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


@pytest.fixture(autouse=True)
def _memory_stays_small() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 * 1024, "an absurd number in a file made the reader allocate"


def _u32(value: int) -> bytes:
    return struct.pack("<I", value)


def _u64(value: int) -> bytes:
    return struct.pack("<Q", value)


EMBED = "token_embd.weight"
NORM = "output_norm.weight"
DEFECTS: dict[str, tuple[str, bytes, str]] = {
    "bad magic": ("magic", b"GGML", "magic: got 'GGML', expected 'GGUF'"),
    "no magic": ("magic", bytes(4), r"magic: got '\?\?\?\?'"),
    "version 0": ("version", _u32(0), "version: got 0"),
    "version 1": ("version", _u32(1), "version: got 1, expected 2 or 3"),
    "version 4": ("version", _u32(4), "version: got 4"),
    "big-endian": ("version", b"\0\0\0\3", "big-endian"),
    "tensor count absurd": ("tensor count", _u64(2**63), "tensor count: claims 92233720"),
    "tensor count too large": ("tensor count", _u64(4), "tensor 3 name"),
    "metadata count absurd": ("metadata count", _u64(2**64 - 1), "metadata count: claims"),
    "metadata count too large": ("metadata count", _u64(18), "tensor 0 name: needs"),
    "key empty": ("key test.u8 length", _u64(0), "metadata entry 2 key: has 0 bytes"),
    "key absurdly long": ("key test.u8 length", _u64(2**64 - 1), "metadata entry 2 key: needs"),
    "key not ASCII": ("key test.u8 bytes", b"\xff", "metadata entry 2 key: .* not printable ASCII"),
    "key twice": ("key test.i8 bytes", b"test.u8", "metadata 'test.u8': appears twice"),
    "value type unknown": ("type test.u8", _u32(13), "metadata 'test.u8' type: got 13"),
    "value type absurd": ("type test.u8", _u32(2**32 - 1), "metadata 'test.u8' type: got 42949"),
    "element type unknown": ("element type test.ints", _u32(99), "array element type: got 99"),
    "array of arrays": ("element type test.ints", _u32(9), "'test.ints': is an array of arrays"),
    "array absurdly long": ("array length test.ints", _u64(2**62), "'test.ints' array length: cl"),
    "string array absurd": ("array length test.empty", _u64(2**61), "'test.empty' array length"),
    "array size overflows": ("array length test.ints", _u64(2**62 + 1), "'test.ints' array length"),
    "string too long": ("value general.architecture length", _u64(2**40), "'general.architecture'"),
    "item too long": ("item 1 of tokenizer.ggml.tokens length", _u64(2**64 - 8), "ggml.tokens'"),
    "bool of 2": ("value test.bool", b"\2", "metadata 'test.bool': a bool has the value 2"),
    "bool item of 255": ("item 1 of test.bools", b"\xff", "metadata 'test.bools': a bool has"),
    "alignment 0": ("value general.alignment", _u32(0), "'general.alignment': got 0"),
    "alignment 48": ("value general.alignment", _u32(48), "got 48, expected a power of two"),
    "alignment huge": ("value general.alignment", _u32(2**31), "offset: "),
    "alignment signed": ("type general.alignment", _u32(5), "'general.alignment': expected one"),
    "tensor name empty": (f"name {EMBED} length", _u64(0), "tensor 0 name: has 0 bytes"),
    "tensor name absurd": (f"name {EMBED} length", _u64(2**63), "tensor 0 name: needs"),
    "no dimensions": (f"n_dims {EMBED}", _u32(0), "n_dims: got 0, expected 1 to 4"),
    "five dimensions": (f"n_dims {EMBED}", _u32(5), "n_dims: got 5"),
    "dimension 0": (f"dim 1 {EMBED}", _u64(0), "dimension 1: 0 makes an empty"),
    "dimension negative": (f"dim 1 {EMBED}", _u64(2**64 - 4), "dimension 1: 18446744073709551612"),
    "elements overflow": (f"dim 1 {EMBED}", _u64(2**60), "dimension 1: 1152921504606846976 makes"),
    "bytes overflow": (f"dim 0 {NORM}", _u64(2**62), "size in bytes overflows"),
    "partial block": (f"dim 0 {EMBED}", _u64(33), "33 is not a multiple of 32"),
    "tensor type removed": (f"tensor type {EMBED}", _u32(4), "type: 4 is not a known tensor type"),
    "tensor type absurd": (f"tensor type {EMBED}", _u32(2**31), "type: 2147483648 is not"),
    "offset unaligned": (f"offset {NORM}", _u64(161), "161 is not a multiple of the alignment 32"),
    "offset outside": (f"offset {NORM}", _u64(2**20), "ends outside the file"),
    "offset overflows": (f"offset {NORM}", _u64(2**64 - 32), "ends outside the file"),
    "data overlap": (f"offset {NORM}", _u64(128), f"overlaps that of '{EMBED}'"),
    "data larger than file": (f"dim 1 {EMBED}", _u64(400), "ends outside the file"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_named(tmp_path: Path, name: str) -> None:
    field, patch, message = DEFECTS[name]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(sample_gguf().patched(field, patch))
    with pytest.raises(FormatError, match=message) as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_two_tensors_of_one_name_are_refused(reader: Reader) -> None:
    image = write_gguf({}, [TensorSpec("a", (4,)), TensorSpec("a", (4,))])
    with pytest.raises(FormatError, match="tensor 'a': appears twice"):
        reader.read_all(image.data)


def test_the_sample_is_well_formed(reader: Reader) -> None:
    assert reader.survives(sample_gguf().data)


def test_truncation_at_every_byte_is_refused(reader: Reader) -> None:
    data = sample_gguf().data
    opened = [end for end in range(len(data)) if reader.survives(data[:end])]
    assert opened == []


def _numbers(size: int, rng: random.Random, old: bytes) -> list[bytes]:
    bits = 8 * size
    value = int.from_bytes(old, "little")
    edges = [0, 1, 2, 7, 31, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63]
    edges += [value + 1, value - 1, value * 2, value << 32, 2**64 // 18, 2**64 // 34 + 1]
    edges += [2**bits - 1 - edge for edge in (0, 1, 31, 32, 255)]
    edges += [rng.getrandbits(bits) for _ in range(4)]
    return [(edge % 2**bits).to_bytes(size, "little") for edge in edges]


def _damaged(image: GgufImage, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    for name, offset, size in image.fields:
        old = bytes(image.data[offset : offset + size])
        for new in _numbers(size, rng, old) if size in (1, 2, 4, 8) else [bytes(size)]:
            if new != old:
                yield name, image.patched(name, new)


def test_every_header_field_with_every_edge_value(reader: Reader) -> None:
    image = sample_gguf()
    refused: dict[str, int] = {}
    for name, data in _damaged(image, random.Random(1)):
        refused[name] = refused.get(name, 0) + (not reader.survives(data))
    free = ("value test.", "item ", "value general.architecture bytes", "key ")
    checked = [name for name in refused if not name.startswith(free) or name.endswith("length")]
    assert len(checked) > 60
    assert [name for name in checked if refused[name] == 0] == []


@pytest.mark.parametrize("flips", [1, 3, 20])
def test_random_bit_flips(reader: Reader, flips: int) -> None:
    rng = random.Random(flips)
    clean = sample_gguf().data
    outcomes = set()
    for _ in range(1000):
        data = bytearray(clean)
        for _ in range(flips):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        outcomes.add(reader.survives(data))
    assert False in outcomes


def test_spliced_and_repeated_pieces(reader: Reader) -> None:
    rng = random.Random(5)
    clean = bytes(sample_gguf().data)
    for _ in range(500):
        a, b, c = (rng.randrange(len(clean)) for _ in range(3))
        reader.survives(clean[:a] + clean[b : b + c % 64] + clean[a:])
        reader.survives(clean[: min(a, b)] + clean[max(a, b) :])


def test_a_header_of_many_tiny_entries_is_read_in_reasonable_memory(reader: Reader) -> None:
    metadata: dict[str, tuple[int, Any]] = {f"k{i}": (U32, i) for i in range(20_000)}
    metadata["list"] = (ARRAY, Array(STR, [""] * 50_000))
    assert reader.survives(write_gguf(metadata, []).data)
