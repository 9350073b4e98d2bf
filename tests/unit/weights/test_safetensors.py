"""Hugging Face folders: names, shards, and safetensors headers that cannot be trusted."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import FormatError, ModelError, ModelNotFoundError, UnsupportedError
from octavo.weights import Checkpoint, dequantize, inspect_model, open_checkpoint
from octavo.weights.names import map_names
from octavo.weights.safetensors import read_entries

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"
FAMILIES = ["llama", "llama-3.1-rope", "qwen2", "mistral-window", "gemma3"]


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_folders_open_with_canonical_names(family: str) -> None:
    checkpoint = open_checkpoint(GOLDEN / family)
    stored = safetensors.numpy.load_file(GOLDEN / family / "model.safetensors")
    assert checkpoint.format == "safetensors"
    assert len(checkpoint.tensors) == len(stored)
    assert all(name == tensor.name for name, tensor in checkpoint.tensors.items())
    pairs = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "blk.2.attn_output.weight": "model.layers.2.self_attn.o_proj.weight",
        "blk.1.ffn_down.weight": "model.layers.1.mlp.down_proj.weight",
    }
    for name, stored_name in pairs.items():
        assert np.array_equal(dequantize(checkpoint.tensors[name]), stored[stored_name])


def test_the_second_norm_means_different_things() -> None:
    for family, name in (("llama", "ffn_norm"), ("gemma3", "post_attention_norm")):
        stored = safetensors.numpy.load_file(GOLDEN / family / "model.safetensors")
        tensor = open_checkpoint(GOLDEN / family).tensors[f"blk.0.{name}.weight"]
        expected = stored["model.layers.0.post_attention_layernorm.weight"]
        assert np.array_equal(dequantize(tensor), expected)


def test_inspection_of_a_folder() -> None:
    inspection = inspect_model(open_checkpoint(GOLDEN / "gemma3"))
    assert inspection.architecture == "gemma3_text"
    assert inspection.vocab_size == 320
    assert inspection.num_layers == 7
    assert inspection.bits_per_weight == 32
    assert inspection.tokenizer is None


def _copy(folder: Path, family: str = "llama") -> Path:
    return Path(shutil.copytree(GOLDEN / family, folder / "model"))


def _change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _sharded(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    folder = _copy(tmp_path)
    stored = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(stored)}
    for shard in set(weight_map.values()):
        part = {name: stored[name] for name, home in weight_map.items() if home == shard}
        safetensors.numpy.save_file(part, folder / shard)
    _write_index(folder, weight_map)
    return folder, weight_map


def _write_index(folder: Path, weight_map: Any) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


def test_a_sharded_folder_equals_a_whole_one(tmp_path: Path) -> None:
    whole, sharded = open_checkpoint(GOLDEN / "llama"), open_checkpoint(_sharded(tmp_path)[0])
    assert whole.tensors.keys() == sharded.tensors.keys()
    for name, tensor in whole.tensors.items():
        assert np.array_equal(dequantize(tensor), dequantize(sharded.tensors[name]))
    for tensor in sharded.tensors.values():
        sharded.release(tensor)
    assert len(sharded.maps) == 2


@pytest.mark.parametrize(
    "home", ["../model.safetensors", "/etc/passwd", "", 3, None, "a/b.safetensors", "x.bin"]
)
def test_an_index_cannot_point_elsewhere(tmp_path: Path, home: object) -> None:
    folder, weight_map = _sharded(tmp_path)
    _write_index(folder, {**weight_map, "lm_head.weight": home})
    with pytest.raises(FormatError, match=r"weight_map of 'lm_head\.weight'"):
        open_checkpoint(folder)


def test_an_index_that_promises_too_much(tmp_path: Path) -> None:
    folder, weight_map = _sharded(tmp_path)
    _write_index(folder, {**weight_map, "extra": "model-0.safetensors"})
    with pytest.raises(FormatError, match="lacks tensor 'extra'"):
        open_checkpoint(folder)
    _write_index(folder, {**weight_map, "extra": "model-7.safetensors"})
    with pytest.raises(
        ModelNotFoundError, match=r"index\.json: tensor 'extra' is in 'model-7\.safe"
    ):
        open_checkpoint(folder)
    _write_index(folder, [1])
    with pytest.raises(FormatError, match="weight_map is missing or not an object"):
        open_checkpoint(folder)


def test_an_index_that_forgets_a_tensor(tmp_path: Path) -> None:
    folder, weight_map = _sharded(tmp_path)
    _write_index(folder, {n: home for n, home in weight_map.items() if n != "model.norm.weight"})
    with pytest.raises(FormatError, match=r"index\.json: lacks tensor 'model\.norm\.weight'"):
        open_checkpoint(folder)


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    folder, weight_map = _sharded(tmp_path)
    part = dict(safetensors.numpy.load_file(folder / "model-0.safetensors"))
    name = next(name for name, home in weight_map.items() if home == "model-1.safetensors")
    safetensors.numpy.save_file(part | {name: np.zeros(1)}, folder / "model-0.safetensors")
    with pytest.raises(FormatError, match=r"is in two files, 'model-1\.safe.*' and 'model-0"):
        open_checkpoint(folder)


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    folder, _ = _sharded(tmp_path)
    data = (folder / "model-1.safetensors").read_bytes()
    (folder / "model-1.safetensors").write_bytes(data[:-100])
    with pytest.raises(FormatError, match=r"model-1\.safetensors: tensor '.*' data_offsets"):
        open_checkpoint(folder)


def test_any_index_is_an_error_or_whole(tmp_path: Path) -> None:
    folder, weight_map = _sharded(tmp_path)
    names = st.sampled_from([*weight_map, "extra"])
    homes = st.sampled_from(["model-0.safetensors", "model-1.safetensors", "x", ".", None, 3])

    @settings(max_examples=40, deadline=None)
    @given(st.dictionaries(names, homes, max_size=3), st.sets(names, max_size=2))
    def check(changes: dict[str, Any], gone: set[str]) -> None:
        changed = {n: home for n, home in (weight_map | changes).items() if n not in gone}
        _write_index(folder, changed)
        if changed == weight_map:
            assert len(open_checkpoint(folder).tensors) == len(weight_map)
            return
        with pytest.raises(ModelError, match=re.escape(str(folder))):
            open_checkpoint(folder)

    check()


def test_a_folder_without_weights(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"neither model\.safetensors nor"):
        open_checkpoint(folder)


def _rewrite(folder: Path, change: Any) -> None:
    stored = dict(safetensors.numpy.load_file(folder / "model.safetensors"))
    change(stored)
    safetensors.numpy.save_file(stored, folder / "model.safetensors")


def test_all_wrong_names_are_told_at_once(tmp_path: Path) -> None:
    folder = _copy(tmp_path, "qwen2")

    def change(stored: dict[str, np.ndarray]) -> None:
        stored["model.layers.0.mlp.gate.weight"] = np.zeros(1, np.float32)
        stored["model.layers.3.input_layernorm.weight"] = np.zeros(1, np.float32)
        del stored["model.norm.weight"]
        del stored["model.layers.1.self_attn.k_proj.bias"]

    _rewrite(folder, change)
    with pytest.raises(FormatError) as caught:
        open_checkpoint(folder)
    message = str(caught.value)
    assert "2 unexpected (model.layers.0.mlp.gate.weight, model.layers.3.input" in message
    assert "2 missing (model.layers.1.self_attn.k_proj.bias, model.norm.weight)" in message


def test_an_unprintable_name_can_be_printed() -> None:
    config = json.loads((GOLDEN / "llama" / "config.json").read_text())
    with pytest.raises(FormatError, match="unexpected") as caught:
        map_names(["\ud800", "a", "b"], config)
    assert str(caught.value).isascii()


def test_a_tied_head_is_left_out_and_an_untied_one_must_be_there(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    _change_config(folder, tie_word_embeddings=True)
    assert "output.weight" not in open_checkpoint(folder).tensors
    _change_config(folder, tie_word_embeddings=False)
    _rewrite(folder, lambda stored: stored.pop("lm_head.weight"))
    with pytest.raises(FormatError, match=r"1 missing \(lm_head\.weight\)"):
        open_checkpoint(folder)


@pytest.mark.parametrize("layers", [0, -1, 10**12, 2.5, True, None, "3"])
def test_number_of_layers_is_checked(tmp_path: Path, layers: object) -> None:
    folder = _copy(tmp_path)
    _change_config(folder, num_hidden_layers=layers)
    with pytest.raises(FormatError, match="num_hidden_layers"):
        open_checkpoint(folder)


@pytest.mark.parametrize("model_type", ["t5", None, ["llama"]])
def test_an_unknown_family_is_refused_by_name(tmp_path: Path, model_type: object) -> None:
    folder = _copy(tmp_path)
    _change_config(folder, model_type=model_type)
    with pytest.raises(UnsupportedError, match="model_type"):
        open_checkpoint(folder)


def test_names_of_a_multimodal_gemma3() -> None:
    text = json.loads((GOLDEN / "gemma3" / "config.json").read_text())
    stored = open_checkpoint(GOLDEN / "gemma3").maps[0].array()
    names = [f"language_model.{name}" for name in read_entries(stored)]
    names += ["vision_tower.x.weight", "multi_modal_projector.y"]
    mapped = map_names(names, {"model_type": "gemma3", "text_config": text})
    assert mapped["language_model.model.norm.weight"] == "output_norm.weight"
    assert len(mapped) == len(names) - 2


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"a": 1, "a": 2}'])
def test_a_broken_config(tmp_path: Path, text: bytes) -> None:
    folder = _copy(tmp_path)
    (folder / "config.json").write_bytes(text)
    with pytest.raises(FormatError, match=r"config\.json: "):
        open_checkpoint(folder)


def _file(header: object, data: bytes = bytes(64)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(**changes: Any) -> bytes:
    return _file({"a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32], **changes}})


_TWO = {
    "a": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
    "b": {"dtype": "F16", "shape": [4], "data_offsets": [6, 14]},
}
DEFECTS: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "header length: the file has 0 bytes"),
    "length cut": (b"\1\0\0", "header length: the file has 3 bytes"),
    "length absurd": (b"\xff" * 8 + b"{}", "header length: claims 18446744073709551615"),
    "length past the end": (struct.pack("<Q", 3) + b"{}", "header length: claims 3"),
    "not JSON": (_file(b"{nope}"), "header: is not valid JSON"),
    "not UTF-8": (_file(b'{"\xff": 1}'), "header: is not valid JSON"),
    "nested too deep": (_file(b'{"a":' * 100_000), "header: is not valid JSON"),
    "number too long": (_file(b'{"a":' + b"9" * 10_000 + b"}"), "header: is not valid JSON"),
    "too many lists": (
        _file(b'{"a":[' + b"[]," * 6_000_000 + b"1]}"),
        "header: has 12000002 lists",
    ),
    "not an object": (_file([1]), "header: expected a JSON object, got list"),
    "name twice": (_file(b'{"a": {}, "a": {}}'), "'a' appears twice"),
    "entry not an object": (_file({"a": 3}), "tensor 'a': expected an object"),
    "no dtype": (_entry(dtype=None), "'a' dtype: None"),
    "unknown dtype": (_entry(dtype="F33"), "'a' dtype: 'F33' is not a known"),
    "dtype a list": (_entry(dtype=["F32"]), "'a' dtype"),
    "no shape": (_entry(shape=None), "'a' shape: expected a list"),
    "shape negative": (_entry(shape=[-2, -4]), "'a' shape: expected a list of sizes"),
    "shape of floats": (_entry(shape=[2.0, 4.0]), "'a' shape"),
    "shape of bools": (_entry(shape=[True, 8]), "'a' shape"),
    "shape huge": (_entry(shape=[2**64, 0]), "'a' shape"),
    "shape overflows": (_entry(shape=[2**62, 2**62, 4]), "'a' data_offsets: 32 bytes, but shape"),
    "too many dimensions": (_entry(shape=[1] * 9), "'a' shape: 9 dimensions"),
    "size differs": (_entry(shape=[2, 5]), r"32 bytes, but shape \[2, 5\] of F32 takes 40"),
    "offsets missing": (_entry(data_offsets=[0]), "'a' data_offsets"),
    "offsets backwards": (_entry(data_offsets=[32, 0]), "'a' data_offsets"),
    "offsets negative": (_entry(data_offsets=[-32, 0]), "'a' data_offsets"),
    "offsets outside": (_entry(data_offsets=[40, 72]), "not a range inside the 64 bytes"),
    "offsets huge": (_entry(data_offsets=[2**62, 2**62 + 32]), "not a range inside"),
    "overlap": (_file(_TWO), "'b' data_offsets: its data overlaps that of 'a'"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_named(name: str) -> None:
    data, message = DEFECTS[name]
    with pytest.raises(FormatError, match=message):
        read_entries(np.frombuffer(data, np.uint8))


def test_a_well_formed_header_passes() -> None:
    assert read_entries(np.frombuffer(_entry(), np.uint8))["a"].shape == (2, 4)
    assert read_entries(np.frombuffer(_file({"__metadata__": {"x": "y"}}), np.uint8)) == {}


@pytest.mark.parametrize("dtype", ["F64", "F8_E4M3", "I32"])
def test_other_dtypes_are_refused_by_name(tmp_path: Path, dtype: str) -> None:
    folder = _copy(tmp_path)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    entry = header["model.norm.weight"]
    size = {"F64": 8, "F8_E4M3": 1, "I32": 4}[dtype]
    entry["dtype"], entry["shape"] = dtype, [256 // size]
    path.write_bytes(_file(header, data[8 + length :]))
    with pytest.raises(UnsupportedError, match=rf"'model\.norm\.weight' has dtype {dtype}"):
        open_checkpoint(folder)


def test_half_precision_weights(tmp_path: Path) -> None:
    folder = _copy(tmp_path)

    def halve(stored: dict[str, np.ndarray]) -> None:
        stored.update({name: value.astype(np.float16) for name, value in stored.items()})

    exact = open_checkpoint(GOLDEN / "llama").tensors["output.weight"]
    _rewrite(folder, halve)
    tensor = open_checkpoint(folder).tensors["output.weight"]
    assert tensor.scheme.name == "F16"
    assert np.array_equal(dequantize(tensor), dequantize(exact).astype(np.float16))


def _open_damaged(folder: Path, number: int, data: bytes) -> Checkpoint:
    """Under an ever new name: a mapped file must not change beneath its map."""
    name = f"model-{number}.safetensors"
    (folder / name).write_bytes(data)
    weight_map = json.loads((folder / "names.json").read_text())
    _write_index(folder, dict.fromkeys(weight_map, name))
    try:
        return open_checkpoint(folder)
    finally:
        (folder / name).unlink()


def test_truncation_and_bit_flips(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    path = folder / "model.safetensors"
    clean = path.read_bytes()
    names = list(read_entries(np.frombuffer(clean, np.uint8)))
    (folder / "names.json").write_text(json.dumps(names))
    path.unlink()
    header_end = 8 + struct.unpack("<Q", clean[:8])[0]
    rng = random.Random(3)
    refused = 0
    for number in range(250):
        damaged = bytearray(clean)
        damaged[rng.randrange(header_end)] ^= 1 << rng.randrange(8)
        cut = len(clean) if number % 2 else rng.randrange(len(clean))
        try:
            checkpoint = _open_damaged(folder, number, bytes(damaged[:cut]))
            for tensor in checkpoint.tensors.values():
                assert dequantize(tensor).shape == tensor.shape
        except ModelError:
            refused += 1
    assert refused > 200
