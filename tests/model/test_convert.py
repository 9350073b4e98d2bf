"""Conversion of every family's tiny model: to GGUF and back, bit for bit, with the same logits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf as gguf_py
import numpy as np
import pytest
from typer.testing import CliRunner

from octavo import LLM, Pooling
from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import run_tokens
from octavo.cli.app import app
from octavo.convert import convert
from octavo.convert.conventions import CONVENTIONS, ENCODERS, MIXTURES, conventions_of
from octavo.errors import FormatError, InvalidParameterError, ModelError, UnsupportedError
from octavo.models import FAMILIES, build_graph, config_from, fit_tensors, pooling_of
from octavo.weights import Tensor, dequantize, open_checkpoint
from octavo.weights.folder import read_json
from octavo.weights.gguf_writer import TensorEntry, write_gguf
from octavo.weights.safetensors import open_safetensors
from octavo.weights.whole import WriteError

HERE = Path(__file__).parent.parent
FOLDERS = {
    path.name: path
    for parent in (HERE / "fixtures" / "families", HERE / "golden" / "tiny")
    for path in sorted(parent.iterdir())
}
ENCODER_FOLDERS = {path.name: path for path in sorted((HERE / "fixtures" / "encoders").iterdir())}
SOME = 12
"""Tokens of a prompt that logits are compared for; the weights are compared bit by bit."""
TEXTS = ["the cat", "a", "of mice and men 1937"]


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


def canonical(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The tensors that a model reads, by canonical name."""
    tensors = open_checkpoint(path).tensors.values()
    read = [t for t in tensors if not t.name.startswith("pooler.")]
    return {t.name: (t.scheme.name, t.shape, t.data.tobytes()) for t in read}


def test_every_family_is_tried_here():
    models = [open_checkpoint(path) for path in (FOLDERS | ENCODER_FOLDERS).values()]
    tried = {config_from(model).architecture for model in models}
    assert tried == {family.key for family in FAMILIES}
    forms = {id(conventions_of(config_from(model), model)) for model in models}
    known = [*CONVENTIONS.values(), *MIXTURES.values(), *ENCODERS.values()]
    untried = [form.class_name for form in known if id(form) not in forms]
    assert set(untried) <= {"XLMRobertaModel", "CamembertModel", "GraniteMoeForCausalLM"} | {
        "BitNetForCausalLM"  # the first architecture: tests/model/test_bitnet.py
    }


@pytest.mark.parametrize("name", FOLDERS)
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
        ids, wanted = expected["input_ids"].reshape(-1).tolist()[:SOME], expected["logits"]
    wanted = wanted.reshape(-1, wanted.shape[-1])[:SOME]
    np.testing.assert_allclose(logits(gguf, ids), wanted, atol=1e-4)
    np.testing.assert_array_equal(logits(back, ids[:4]), logits(folder, ids[:4]))


@pytest.mark.parametrize("name", ENCODER_FOLDERS)
def test_encoders_there_and_back(name: str, tmp_path: Path):
    """Tokenizer, pooling, prompts and heads too: the same vectors and scores from text."""
    folder = ENCODER_FOLDERS[name]
    gguf = convert(folder, tmp_path / "model.gguf")
    back = convert(gguf, tmp_path / "back")
    assert canonical(back) == canonical(folder)
    if name not in ("roberta", "bert-masked"):  # heads that nothing reads are left out
        assert stored(back) == stored(folder)
    old, new = (read_json(path / "config.json") for path in (folder, back))
    assert old["model_type"] == new["model_type"]
    wanted, *others = (_answers(path) for path in (folder, gguf, back))
    for got in others:
        np.testing.assert_array_equal(got, wanted)
    for path in folder.rglob("*.json"):
        if path.name not in ("config.json", "tokenizer.json") or path.parent != folder:
            theirs = json.loads((back / path.relative_to(folder)).read_text())
            assert theirs == json.loads(path.read_text())


def _answers(path: Path) -> list[Any]:
    with LLM(str(path)) as llm:
        if llm.options.task == "score":
            return [o.score for o in llm.score("the cat", TEXTS, use_tqdm=False)]
        assert llm.options.pooling == "mean"
        return [o.embedding for o in llm.embed(TEXTS, use_tqdm=False)]


@pytest.mark.parametrize("kind", ["mean", "cls"])
def test_pooling_of_others_becomes_files(kind: str, tmp_path: Path):
    """GGUF's own keys alone give the files that sentence-transformers reads."""
    gguf = convert(ENCODER_FOLDERS["roberta"], tmp_path / "m.gguf")
    checkpoint = open_checkpoint(gguf)
    metadata = {k: v for k, v in checkpoint.metadata.items() if not k.startswith("octavo.")}
    metadata["bert.pooling_type"] = np.uint32({"mean": 1, "cls": 2}[kind])
    tensors = list(checkpoint.tensors.values())
    foreign = rewritten(tmp_path / "foreign.gguf", metadata, tensors)
    back = open_checkpoint(convert(foreign, tmp_path / "back"))
    assert back.metadata["model_type"] == "bert"  # positions without padding's are BERT's
    assert pooling_of(back, is_encoder=True) == kind
    wanted, got = _answers_of_states(gguf, kind), _answers_of_states(tmp_path / "back", kind)
    np.testing.assert_array_equal(got, wanted)


def _answers_of_states(path: Path, kind: str) -> list[Any]:
    with LLM(str(path)) as llm:
        how = Pooling("mean" if kind == "mean" else "cls", normalize=True)
        return [o.embedding for o in llm.embed(TEXTS, how, use_tqdm=False)]


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss", "falcon-grouped", "qwen2-moe"])
def test_gguf_py_reads_the_same(name: str, tmp_path: Path):
    path = convert(FOLDERS[name], tmp_path / "m.gguf")
    theirs = {tensor.name: tensor for tensor in gguf_py.GGUFReader(path).tensors}
    ours = open_checkpoint(path).tensors
    assert list(theirs) == list(ours)
    for tensor_name, tensor in ours.items():
        assert tuple(theirs[tensor_name].shape[::-1]) == tensor.shape
        values = gguf_py.dequantize(theirs[tensor_name].data, theirs[tensor_name].tensor_type)
        np.testing.assert_array_equal(values.reshape(tensor.shape), dequantize(tensor))


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


@pytest.mark.parametrize("name", ["mixtral", "gpt-oss", "deepseek-v2", "granite-moe"])
def test_mixtures_become_stacks_of_experts(name: str, tmp_path: Path):
    path = convert(FOLDERS[name], tmp_path / "model.gguf", dtype="f32")
    shapes = {n: t.shape for n, t in open_checkpoint(path).tensors.items()}
    assert len(shapes["blk.1.ffn_gate_exps.weight"]) == 3


def test_quantized_experts_become_floats(tmp_path: Path):
    """Blocks lie along another side there, so numbers are widened before they are turned."""
    path = convert(FOLDERS["granite-moe"], tmp_path / "m.gguf", dtype="q8_0")
    back = convert(path, tmp_path / "back")
    ids = list(range(3, 20))
    np.testing.assert_allclose(logits(back, ids), logits(path, ids), atol=1e-5)
    again = convert(back, tmp_path / "again.gguf")
    for name, tensor in open_checkpoint(path).tensors.items():
        np.testing.assert_array_equal(
            dequantize(open_checkpoint(again).tensors[name]), dequantize(tensor)
        )


def test_rotation_that_gguf_cannot_say(tmp_path: Path):
    folder = changed("deepseek-v3", tmp_path, rope_interleave=False)
    with pytest.raises(UnsupportedError, match="rotated together"):
        convert(folder, tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["granite-moe", "deepseek-v3", "falcon-grouped"])
def test_broken_models_are_not_converted(name: str, tmp_path: Path):
    """Nor is anything written: tensors are checked as the loader checks them."""
    path = convert(FOLDERS[name], tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    lost = {"granite-moe": "ffn_up_exps", "deepseek-v3": "attn_v_b"}.get(name, "attn_qkv")
    kept = [t for t in checkpoint.tensors.values() if f"blk.1.{lost}." not in t.name]
    broken = rewritten(tmp_path / "broken.gguf", dict(checkpoint.metadata), kept)
    with pytest.raises(FormatError, match=lost.removesuffix("qkv")):
        convert(broken, tmp_path / "back")
    assert sorted(tmp_path.iterdir()) == [broken, path]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("octavo.exact.position_embd.weight", np.zeros(5, np.float32)),
        ("octavo.exact.position_embd.weight", np.zeros(64, np.int32)),
        ("octavo.exact.position_embd.weight", np.zeros(32 * 3, np.float32)),
        ("octavo.exact.position_embd.weight", "rows"),
        ("octavo.model_type", "llama"),
        ("octavo.model_type", np.uint32(3)),
        ("octavo.sentence_transformers", "[1]"),
        ("octavo.sentence_transformers", '{"modules": {}}'),
        ("octavo.sentence_transformers", '{"pooling": {"pooling_mode_max_tokens": true}}'),
        ("octavo.tokenizer.middle_ids", np.array([-1], np.int32)),
        ("octavo.tokenizer.middle_ids", "x"),
    ],
)
@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_own_keys_are_not_trusted(name: str, key: str, value: Any, tmp_path: Path):
    """An error that names what is wrong, or a folder of the same model; never a crash."""
    checkpoint = open_checkpoint(convert(ENCODER_FOLDERS[name], tmp_path / "m.gguf"))
    metadata = {**checkpoint.metadata, key: value}
    odd = rewritten(tmp_path / "odd.gguf", metadata, list(checkpoint.tensors.values()))
    try:
        back = convert(odd, tmp_path / "back")
    except ModelError:
        assert not (tmp_path / "back").exists()
    else:
        build_graph(config_from(open_checkpoint(back)), fitted(back))


def fitted(path: Path) -> dict[str, Any]:
    checkpoint = open_checkpoint(path)
    return dict(fit_tensors(config_from(checkpoint), checkpoint).tensors)


def rewritten(path: Path, metadata: dict[str, Any], tensors: list[Tensor]) -> Path:
    """A GGUF file of these."""
    with path.open("wb") as file:
        entries = [TensorEntry(t.name, t.shape, t.scheme) for t in tensors]
        write_gguf(file, metadata, entries, iter([t.data for t in tensors]))
    return path


def changed(name: str, tmp_path: Path, **settings: Any) -> Path:
    """A fixture with other keys in its config.json."""
    folder = tmp_path / "changed"
    shutil.copytree(FOLDERS[name], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    return folder


def test_setting_that_gguf_cannot_say(tmp_path: Path):
    folder = changed("smollm3", tmp_path, no_rope_layers=[0, 1, 1, 1])
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
