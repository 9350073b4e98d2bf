"""Conversion of every family's tiny model: to GGUF and back, bit for bit, with the same logits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import run_tokens
from octavo.cli.app import app
from octavo.convert import convert
from octavo.convert.conventions import CONVENTIONS
from octavo.errors import FormatError, InvalidParameterError, UnsupportedError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import dequantize, open_checkpoint
from octavo.weights.folder import read_json
from octavo.weights.safetensors import open_safetensors
from octavo.weights.whole import WriteError

HERE = Path(__file__).parent.parent
FOLDERS = {
    path.name: path
    for parent in (HERE / "fixtures" / "families", HERE / "golden" / "tiny")
    for path in sorted(parent.iterdir())
}


def _is_convertible(path: Path) -> bool:
    try:
        config = config_from(open_checkpoint(path))
        return config.architecture in CONVENTIONS and config.mixture is None
    except (UnsupportedError, FormatError):
        return False


CONVERTIBLE = [name for name, path in FOLDERS.items() if _is_convertible(path)]


def logits(path: Path, ids: list[int]) -> np.ndarray:
    checkpoint = open_checkpoint(path)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(max_tokens=96, max_seqs=96)
    executable = get_backend("reference").compile(graph, checkpoint, config, options)
    return run_tokens(executable, ids, 96)


def stored(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor of a folder: dtype, shape, bytes."""
    file = open_safetensors(folder / "model.safetensors")
    data = file.map.array()
    return {
        entry.name: (entry.dtype, entry.shape, data[entry.begin : entry.end].tobytes())
        for entry in file.entries.values()
    }


def test_every_family_with_conventions_has_a_model_here():
    tried = {config_from(open_checkpoint(FOLDERS[name])).architecture for name in CONVERTIBLE}
    assert tried == set(CONVENTIONS)


@pytest.mark.parametrize("name", CONVERTIBLE)
def test_there_and_back(name: str, tmp_path: Path):
    folder = FOLDERS[name]
    gguf = convert(folder, tmp_path / "model.gguf")
    back = convert(gguf, tmp_path / "back")
    assert stored(back) == stored(folder)
    assert (
        read_json(back / "config.json")["model_type"]
        == read_json(folder / "config.json")["model_type"]
    )
    with np.load(folder / "expected.npz") as expected:
        ids, wanted = expected["input_ids"].reshape(-1).tolist()[:40], expected["logits"]
    np.testing.assert_array_equal(logits(back, ids), logits(folder, ids))
    np.testing.assert_allclose(
        logits(gguf, ids), wanted.reshape(-1, wanted.shape[-1])[:40], atol=1e-4
    )


@pytest.mark.parametrize(("dtype", "name"), [("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0")])
def test_types_of_matrices(dtype: str, name: str, tmp_path: Path):
    gguf = open_checkpoint(convert(FOLDERS["qwen2"], tmp_path / "m.gguf", dtype=dtype))
    source = open_checkpoint(FOLDERS["qwen2"])
    assert {t.scheme.name for t in gguf.tensors.values() if len(t.shape) > 1} == {name}
    assert {t.scheme.name for t in gguf.tensors.values() if len(t.shape) == 1} == {"F32"}
    limit = {"F16": 2**-11, "BF16": 2**-8, "Q8_0": 2**-6}[name]
    for key, tensor in source.tensors.items():
        wide = dequantize(tensor)
        np.testing.assert_allclose(
            dequantize(gguf.tensors[key]), wide, rtol=0, atol=limit * np.abs(wide).max()
        )


def test_quantized_file_becomes_a_folder_of_the_same_numbers(tmp_path: Path):
    gguf = convert(FOLDERS["llama"], tmp_path / "m.gguf", dtype="q8_0")
    folder = convert(gguf, tmp_path / "folder")
    back = open_checkpoint(convert(folder, tmp_path / "back.gguf"))
    for name, tensor in open_checkpoint(gguf).tensors.items():
        np.testing.assert_array_equal(dequantize(back.tensors[name]), dequantize(tensor))


def test_what_is_there_is_replaced_only_when_told(tmp_path: Path):
    target = tmp_path / "m.gguf"
    target.write_bytes(b"precious")
    with pytest.raises(WriteError, match="is there already"):
        convert(FOLDERS["qwen2"], target)
    assert target.read_bytes() == b"precious"
    convert(FOLDERS["qwen2"], target, force=True)
    assert target.read_bytes()[:4] == b"GGUF"
    assert list(tmp_path.iterdir()) == [target]


def test_a_type_that_a_folder_cannot_hold(tmp_path: Path):
    gguf = convert(FOLDERS["qwen2"], tmp_path / "m.gguf")
    with pytest.raises(InvalidParameterError, match="dtype"):
        convert(gguf, tmp_path / "folder", dtype="q8_0")
    assert list(tmp_path.iterdir()) == [gguf]


def test_family_without_a_form_in_the_other_format(tmp_path: Path):
    with pytest.raises(UnsupportedError, match="'opt'"):
        convert(FOLDERS["opt"], tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe", "gpt-oss", "olmoe", "granite-moe"])
def test_mixtures_become_stacks_of_experts(name: str, tmp_path: Path):
    folder = FOLDERS[name]
    gguf = convert(folder, tmp_path / "model.gguf", dtype="f32")
    shapes = {n: t.shape for n, t in open_checkpoint(gguf).tensors.items()}
    assert len(shapes["blk.1.ffn_gate_exps.weight"]) == 3
    with np.load(folder / "expected.npz") as expected:
        ids, wanted = expected["input_ids"].reshape(-1).tolist()[:40], expected["logits"]
    np.testing.assert_allclose(logits(gguf, ids), wanted[:40], atol=1e-4)
    with pytest.raises(UnsupportedError, match="experts, which a GGUF file stacks"):
        convert(gguf, tmp_path / "back")


def test_layers_without_experts_cannot_be_said(tmp_path: Path):
    with pytest.raises(UnsupportedError, match="mixture"):
        convert(FOLDERS["qwen2-moe"], tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_setting_that_gguf_cannot_say(tmp_path: Path):
    folder = tmp_path / "odd"
    shutil.copytree(FOLDERS["smollm3"], folder)
    config = json.loads((folder / "config.json").read_text())
    config["no_rope_layers"] = [0, 1, 1, 1]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match="ropeless_layers"):
        convert(folder, tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("way", ["gguf", "folder"])
def test_an_error_on_the_way_leaves_nothing(way: str, tmp_path: Path):
    source = FOLDERS["qwen2"]
    if way == "folder":
        source = convert(source, tmp_path / "m.gguf")
    before = sorted(tmp_path.iterdir())

    def full_disk(done: int, total: int, name: str) -> None:
        if done > total // 2:
            raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match="No space left"):
        convert(source, tmp_path / "out", progress=full_disk)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("way", ["gguf", "folder"])
def test_a_kill_leaves_nothing(way: str, tmp_path: Path):
    source = FOLDERS["qwen2"]
    if way == "folder":
        source = convert(source, tmp_path / "m.gguf")
    before = sorted(tmp_path.iterdir())
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom octavo.convert import convert\n"
        "convert(Path(sys.argv[1]), Path(sys.argv[2]), progress=lambda *a: os.kill(os.getpid(), 9))"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "out")]
    assert subprocess.run(command).returncode == -9
    assert sorted(tmp_path.iterdir()) == before


def test_command(tmp_path: Path):
    result = CliRunner().invoke(app, ["convert", str(FOLDERS["qwen2"]), "-o", str(tmp_path / "m")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "m").read_bytes()[:4] == b"GGUF"
