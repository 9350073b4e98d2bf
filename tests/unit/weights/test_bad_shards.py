"""One defect at a time in a model of two shards: the error names the file and the tensor."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from octavo.errors import ModelError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import open_checkpoint

ROOT = Path(__file__).parents[2]
HOMES = {
    path.name: path
    for parent in (ROOT / "golden" / "tiny", ROOT / "fixtures" / "families")
    for path in parent.iterdir()
}
HOMES |= {path.name: path for path in (ROOT / "fixtures" / "encoders").iterdir()}
INDEX = "model.safetensors.index.json"
LAYER = "model.layers.1"
Header = dict[str, Any]


@dataclass
class Shards:
    """A copy of a model in two files: tensors of layer 1 lie in the second."""

    folder: Path
    homes: dict[str, str]

    def path(self, name: str) -> Path:
        return self.folder / self.homes[name]

    def index(self, **changes: Any) -> None:
        text = json.dumps({"metadata": {}, "weight_map": self.homes, **changes})
        (self.folder / INDEX).write_text(text)

    def replace(self, name: str, array: np.ndarray | None) -> None:
        """Another array under this name, or none."""
        stored = dict(safetensors.numpy.load_file(self.path(name)))
        stored.pop(name)
        if array is not None:
            stored[name] = array
        safetensors.numpy.save_file(stored, self.path(name))

    def header(self, name: str, change: Callable[[Header], object]) -> None:
        """Change the header of a tensor's file, data staying where they are."""
        raw = self.path(name).read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        self.path(name).write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])

    def load(self) -> None:
        checkpoint = open_checkpoint(self.folder)
        config = config_from(checkpoint)
        build_graph(config, fit_tensors(config, checkpoint).tensors)


def shards(family: str, tmp_path: Path) -> Shards:
    folder = Path(shutil.copytree(HOMES[family], tmp_path / "model"))
    stored = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    found = Shards(folder, {name: f"part-{int('.1.' in name)}.safetensors" for name in stored})
    for file in set(found.homes.values()):
        part = {name: stored[name] for name, home in found.homes.items() if home == file}
        safetensors.numpy.save_file(part, folder / file)
    found.index()
    return found


NAME = f"{LAYER}.self_attn.k_proj.weight"


def set_field(field: str, value: Any) -> Callable[[Shards], None]:
    return lambda s: s.header(NAME, lambda header: header[NAME].__setitem__(field, value))


def overlap(s: Shards) -> None:
    def change(header: Header) -> None:
        other = f"{LAYER}.self_attn.v_proj.weight"
        header[other]["data_offsets"] = header[NAME]["data_offsets"]

    s.header(NAME, change)


def cut(s: Shards) -> None:
    s.path(NAME).write_bytes(s.path(NAME).read_bytes()[:-8])


def cut_header(s: Shards) -> None:
    s.path(NAME).write_bytes(s.path(NAME).read_bytes()[:40])


def long_header(s: Shards) -> None:
    raw = s.path(NAME).read_bytes()
    s.path(NAME).write_bytes(struct.pack("<Q", 1 << 62) + raw[8:])


def twice(s: Shards) -> None:
    other = s.folder / "part-0.safetensors"
    stored = dict(safetensors.numpy.load_file(other))
    safetensors.numpy.save_file(stored | {NAME: np.zeros(1, np.float32)}, other)


def without_shard(s: Shards) -> None:
    s.path(NAME).unlink()


DEFECTS: dict[str, tuple[Callable[[Shards], None], str, str]] = {
    "dtype of no weight": (lambda s: s.replace(NAME, np.zeros((32, 64), np.int64)), "part-1", NAME),
    "unknown dtype": (set_field("dtype", "F13"), "part-1", NAME),
    "no dtype": (set_field("dtype", None), "part-1", NAME),
    "rows": (lambda s: s.replace(NAME, np.zeros((30, 64), np.float32)), "part-1", NAME),
    "turned": (lambda s: s.replace(NAME, np.zeros((64, 32), np.float32)), "part-1", NAME),
    "one dimension": (lambda s: s.replace(NAME, np.zeros(64, np.float32)), "part-1", NAME),
    "no dimension": (lambda s: s.replace(NAME, np.zeros((), np.float32)), "part-1", NAME),
    "empty": (lambda s: s.replace(NAME, np.zeros((0, 64), np.float32)), "part-1", NAME),
    "shape beyond its bytes": (set_field("shape", [4096, 4096]), "part-1", NAME),
    "negative size": (set_field("shape", [-1, 64]), "part-1", NAME),
    "absurd size": (set_field("shape", [1 << 62, 1 << 62]), "part-1", NAME),
    "offsets beyond the file": (set_field("data_offsets", [0, 1 << 40]), "part-1", NAME),
    "offsets turned round": (set_field("data_offsets", [64, 0]), "part-1", NAME),
    "overlap": (overlap, "part-1", LAYER),
    "truncated": (cut, "part-1", LAYER),
    "truncated header": (cut_header, "part-1", "header length"),
    "absurd header": (long_header, "part-1", "header length"),
    "in two shards": (twice, "part-0", NAME),
    "missing shard": (without_shard, "part-1", LAYER),
    "lacking in its shard": (lambda s: s.replace(NAME, None), "part-1", NAME),
    "index names none": (
        lambda s: s.index(weight_map={**s.homes, "x": "part-7.safetensors"}),
        "part-7",
        "'x'",
    ),
    "index leaves out": (
        lambda s: s.index(weight_map={n: h for n, h in s.homes.items() if n != NAME}),
        "part-1",
        NAME,
    ),
    "index in another shard": (
        lambda s: s.index(weight_map={**s.homes, NAME: "part-0.safetensors"}),
        "part-0",
        NAME,
    ),
    "index is a list": (lambda s: s.index(weight_map=list(s.homes)), INDEX, "weight_map"),
    "total size is no number": (
        lambda s: s.index(metadata={"total_size": "all"}),
        INDEX,
        "total_size",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_file_and_tensor_are_named(defect: str, tmp_path: Path) -> None:
    found = shards("llama", tmp_path)
    damage, file, tensor = DEFECTS[defect]
    damage(found)
    with pytest.raises(ModelError) as caught:
        found.load()
    assert file in str(caught.value)
    assert tensor in str(caught.value)


def test_a_wrong_total_is_told(tmp_path: Path) -> None:
    found = shards("llama", tmp_path)
    found.index(metadata={"total_size": 17})
    found.load()
    assert any("total_size says 17" in note for note in open_checkpoint(found.folder).notes)


OTHERS = {
    "gpt2": "h.1.attn.c_attn.weight",
    "phi3": f"{LAYER}.self_attn.qkv_proj.weight",
    "gpt-neox": "gpt_neox.layers.1.attention.query_key_value.weight",
    "falcon-grouped": "transformer.h.1.self_attention.query_key_value.weight",
    "mixtral": f"{LAYER}.block_sparse_moe.experts.1.w2.weight",
    "granite-moe": f"{LAYER}.block_sparse_moe.input_linear.weight",
    "gpt-oss": f"{LAYER}.mlp.experts.gate_up_proj",
    "qwen2-moe": f"{LAYER}.mlp.gate_proj.weight",
    "deepseek-v3": f"{LAYER}.self_attn.kv_b_proj.weight",
    "deepseek-v2": f"{LAYER}.self_attn.q_b_proj.weight",
    "modernbert": "layers.1.mlp.Wi.weight",
    "bert-rerank": "bert.encoder.layer.1.output.dense.weight",
}


@pytest.mark.parametrize("shape", [(), (3,), (7, 5), (0, 4), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("family", OTHERS)
def test_joined_and_stacked_ones_too(family: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Where a family takes tensors apart before the graph's check sees them."""
    found = shards(family, tmp_path)
    name = next(n for n in found.homes if n.endswith(OTHERS[family]))
    found.replace(name, np.zeros(shape, np.float32))
    with pytest.raises(ModelError) as caught:
        found.load()
    assert found.homes[name] in str(caught.value)
    assert name in str(caught.value)
