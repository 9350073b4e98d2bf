"""Quantizing tiny models: what comes out runs, near the float model and nearer by calibration."""

from __future__ import annotations

import os
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
from octavo.errors import InvalidParameterError, UnsupportedError
from octavo.graph import Op
from octavo.quantize import Options, quantize
from octavo.quantize.forward import Forward
from octavo.quantize.rounding import rounded
from octavo.quantize.scaling import folds_of, observe
from octavo.quantize.source import SourceModel
from octavo.weights import SCHEMES, Scheme, dequantize, open_checkpoint
from octavo.weights.whole import WriteError

HERE = Path(__file__).parent.parent
TINY, FAMILIES = HERE / "golden" / "tiny", HERE / "fixtures" / "families"
LLAMA = TINY / "llama"
WINDOWS = np.random.default_rng(0).integers(3, 96, (6, 24)).tolist()


@pytest.fixture(autouse=True)
def _calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixtures have no tokenizer."""
    monkeypatch.setattr("octavo.quantize.run.calibration_windows", lambda *_: WINDOWS)


def logits(source: SourceModel, ids: list[int]) -> np.ndarray:
    graph = source.graph()
    options = BackendOptions(max_tokens=64, max_seqs=64)
    executable = get_backend("reference").compile(graph, source.fitted, source.config, options)
    return run_tokens(executable, ids, 64)


def divergence(path: Path, reference: Path) -> float:
    """Mean KL over the calibration windows' first tokens."""
    total = 0.0
    for ids in WINDOWS[:4]:
        p, q = (
            x - np.log(np.exp(x).sum(-1, keepdims=True))
            for x in (logits(SourceModel(one), ids).astype(np.float64) for one in (reference, path))
        )
        total += float((np.exp(p) * (p - q)).sum(-1).mean())
    return total


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq", "awq+gptq"])
def test_methods(method: str, tmp_path: Path):
    written = quantize(LLAMA, tmp_path / "m.gguf", Options("q4_0", method))
    found = open_checkpoint(tmp_path / "m.gguf")
    assert found.tensors["blk.0.attn_q.weight"].scheme.name == "Q4_0"
    assert found.tensors["token_embd.weight"].scheme.name == "Q5_0"  # no room for Q4_K in 64
    assert found.tensors["output.weight"].scheme.name == "Q8_0"  # nor for Q6_K
    assert found.tensors["blk.0.attn_norm.weight"].scheme.name == "F32"
    assert written.fallbacks == {"Q4_K -> Q5_0": 1, "Q6_K -> Q8_0": 1}
    assert written.size_bytes == (tmp_path / "m.gguf").stat().st_size
    assert divergence(tmp_path / "m.gguf", LLAMA) < 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_calibration_beats_rounding(tmp_path: Path):
    kl = {}
    for method in ("rtn", "awq", "gptq"):
        quantize(TINY / "qwen2", tmp_path / f"{method}.gguf", Options("q4_0", method))
        kl[method] = divergence(tmp_path / f"{method}.gguf", TINY / "qwen2")
    assert kl["gptq"] < kl["rtn"]
    assert kl["awq"] < kl["rtn"]


@pytest.mark.parametrize("scheme", ["q4_1", "q5_0", "q5_1", "q8_0", "int4-g32", "int8", "mxfp4"])
def test_schemes(scheme: str, tmp_path: Path):
    quantize(LLAMA, tmp_path / "m.gguf", Options(scheme, "rtn"))
    limit = 0.9 if scheme == "mxfp4" else 0.4  # its steps grow with the numbers
    assert divergence(tmp_path / "m.gguf", LLAMA) < limit


@pytest.mark.parametrize("family", ["phi3", "gpt2", "gemma3", "olmo2"])
def test_families_with_joined_tensors_and_odd_norms(family: str, tmp_path: Path):
    quantize(TINY / family, tmp_path / "m.gguf", Options("q8_0", "gptq"))
    assert divergence(tmp_path / "m.gguf", TINY / family) < 0.01


def test_parts_of_a_joined_tensor_are_rounded_each_in_its_own_way(tmp_path: Path):
    """q, k and v read the same, but how far its statistics are trusted is tried for each."""
    quantize(TINY / "phi3", tmp_path / "m.gguf", Options("q4_0", "awq"))
    written = open_checkpoint(tmp_path / "m.gguf").tensors
    source = SourceModel(TINY / "phi3")
    forward = Forward(source.graph(), WINDOWS, source.expand, source.lookup)
    scheme = SCHEMES["Q4_0"]

    def scheme_of(name: str) -> Scheme | None:
        return scheme if name in source.parts and name.startswith("blk.") else None

    found = observe(source, forward, scheme_of, 1, scale=True, progress=lambda *_: None)
    kinds = set()
    for layer in range(source.config.num_layers):
        for joined, parts in (("attn_qkv", "qkv"), ("ffn_up", ("ffn_gate", "ffn_up"))):
            names = [f"blk.{layer}.{p if len(p) > 1 else 'attn_' + p}.weight" for p in parts]
            costs = [found.importance.get(name) for name in names]
            kinds.add(len({b"" if cost is None else cost.tobytes() for cost in costs}))
            blocks = [
                rounded(source.expand(name), scheme, cost, 1)
                for name, cost in zip(names, costs, strict=True)
            ]
            data = written[f"blk.{layer}.{joined}.weight"].data
            np.testing.assert_array_equal(data, np.concatenate(blocks).reshape(-1))
    assert max(kinds) > 1


@pytest.mark.parametrize(
    "folder",
    [
        LLAMA,
        *(TINY / name for name in ("qwen2", "gemma3", "phi3", "gpt-oss")),
        FAMILIES / "starcoder2",
    ],
)
def test_factors_leave_the_model_as_it_is(folder: Path):
    source = SourceModel(folder)
    graph = source.graph()
    before = logits(source, WINDOWS[0])
    forward = Forward(graph, WINDOWS, source.expand, source.lookup)
    observe(source, forward, lambda _: SCHEMES["Q4_0"], 1, scale=True, progress=lambda *_: None)
    assert source.columns
    assert folds_of(graph)
    results = {}

    def keep(value, x):
        results[value.name] = x
        return x

    Forward(graph, WINDOWS[:1], source.expand, source.lookup).run(
        lambda node, weight, x: source.expand(weight.name), keep
    )
    np.testing.assert_allclose(results[graph.output.name], before, atol=2e-4)


@pytest.mark.parametrize(
    "folder",
    [FAMILIES / name for name in ("qwen3-moe", "qwen2-moe", "deepseek-v2", "deepseek-v3")]
    + [TINY / "gpt-oss"],
)
def test_the_run_over_the_text_is_the_model(folder: Path):
    """With experts and latent attention too."""
    source = SourceModel(folder)
    results = {}

    def keep(value, x):
        results[value.name] = x
        return x

    forward = Forward(source.graph(), WINDOWS[:2], source.expand, source.lookup)
    forward.run(lambda node, weight, x: source.expand(weight.name), keep)
    for i, ids in enumerate(WINDOWS[:2]):
        own = results[forward.graph.output.name][i * len(ids) : (i + 1) * len(ids)]
        np.testing.assert_allclose(own, logits(source, ids), atol=2e-4)


@pytest.mark.parametrize("family", ["qwen3-moe", "deepseek-v2", "deepseek-v3"])
def test_experts_and_latents_by_calibration(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    windows = np.random.default_rng(0).integers(3, 96, (32, 24)).tolist()
    monkeypatch.setattr("octavo.quantize.run.calibration_windows", lambda *_: windows)
    kl = {}
    for method in ("rtn", "awq", "gptq"):
        quantize(FAMILIES / family, tmp_path / f"{method}.gguf", Options("q4_0", method))
        kl[method] = divergence(tmp_path / f"{method}.gguf", FAMILIES / family)
    # Random weights and texts have little to learn from; what goes wrong is far worse.
    assert kl["gptq"] < (1 if family == "qwen3-moe" else 1.1) * kl["rtn"]
    assert kl["awq"] < 1.2 * kl["rtn"]


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq", "awq+gptq"])
def test_progress_goes_up_to_the_end(method: str, tmp_path: Path):
    """Observing too, so that the time left can be told from the start."""
    seen: list[tuple[int, int, str]] = []
    quantize(
        FAMILIES / "qwen3-moe",
        tmp_path / "m.gguf",
        Options("q4_0", method),
        lambda *report: seen.append(report),
    )
    done = [report[0] for report in seen]
    assert done == sorted(done)
    assert len({report[1] for report in seen}) == 1
    assert done[-1] == seen[-1][1]
    assert max(np.diff(done)) < 0.2 * done[-1]
    assert any("observing" in report[2] for report in seen) == ("awq" in method)


def test_a_killed_gptq_run_goes_on(tmp_path: Path):
    """Experts too: the rows that are there are read back and not made again."""

    class Killed(BaseException):
        pass

    def stop(done: int, total: int, _: str) -> None:
        if 2 * done > total:
            raise Killed

    source, options = FAMILIES / "qwen3-moe", Options("q4_0", "gptq")
    quantize(source, tmp_path / "whole.gguf", options)
    with pytest.raises(Killed):
        quantize(source, tmp_path / "m.gguf", options, stop)
    assert quantize(source, tmp_path / "m.gguf", options).resumed
    assert (tmp_path / "m.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_mixed_stays_within_its_bits_and_beats_what_is_as_large(tmp_path: Path):
    kl = {}
    for bits in (5.5, 7.5):
        options = Options("mixed", "rtn", target_bits=bits)
        written = quantize(TINY / "qwen3", tmp_path / f"{bits}.gguf", options)
        assert written.bits_per_weight <= bits
        kl[bits] = divergence(tmp_path / f"{bits}.gguf", TINY / "qwen3")
    assert kl[7.5] < kl[5.5]


def test_mixed_with_too_few_bits(tmp_path: Path):
    with pytest.raises(InvalidParameterError, match="target_bits"):
        quantize(LLAMA, tmp_path / "m.gguf", Options("mixed", "rtn", target_bits=3))
    assert not list(tmp_path.iterdir())


def test_a_killed_run_goes_on_and_gives_the_same_file(tmp_path: Path):
    whole = quantize(LLAMA, tmp_path / "whole.gguf", Options("q4_0", "rtn"))
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom octavo.quantize import Options, quantize\n"
        "def progress(done, total, what):\n    if 3 * done > total: os.kill(os.getpid(), 9)\n"
        "quantize(Path(sys.argv[1]), Path(sys.argv[2]), Options('q4_0', 'rtn'), progress)"
    )
    command = [sys.executable, "-c", code, str(LLAMA), str(tmp_path / "m.gguf")]
    assert subprocess.run(command, env=os.environ).returncode == -9
    assert not (tmp_path / "m.gguf").exists()
    again = quantize(LLAMA, tmp_path / "m.gguf", Options("q4_0", "rtn"))
    assert again.resumed
    assert not whole.resumed
    assert (tmp_path / "m.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_quantized_source_is_warned_of(tmp_path: Path):
    source = convert(LLAMA, tmp_path / "q8.gguf", dtype="q8_0")
    written = quantize(source, tmp_path / "m.gguf", Options("q4_0", "rtn"))
    assert "quantized already" in written.warnings[0]
    assert not quantize(LLAMA, tmp_path / "n.gguf", Options("q4_0", "rtn")).warnings


def test_bad_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InvalidParameterError, match="scheme"):
        quantize(LLAMA, tmp_path / "m.gguf", Options("q17"))
    with pytest.raises(InvalidParameterError, match="method"):
        quantize(LLAMA, tmp_path / "m.gguf", Options("q4_0", "magic"))
    with pytest.raises(WriteError, match="no folder"):
        quantize(LLAMA, tmp_path / "none" / "m.gguf", Options("q4_0", "rtn"))
    monkeypatch.setattr("octavo.quantize.forward.RUN", frozenset({Op.LINEAR}))
    with pytest.raises(UnsupportedError, match="attention"):
        quantize(LLAMA, tmp_path / "m.gguf", Options("q4_0", "awq"))
    assert not list(tmp_path.iterdir())


def test_vectors_keep_their_numbers(tmp_path: Path):
    quantize(LLAMA, tmp_path / "m.gguf", Options("q4_0", "rtn"))
    before, after = open_checkpoint(LLAMA), open_checkpoint(tmp_path / "m.gguf")
    for name in ("blk.1.attn_norm.weight", "output_norm.weight"):
        np.testing.assert_array_equal(
            dequantize(after.tensors[name]), dequantize(before.tensors[name])
        )


def test_command(tmp_path: Path):
    out = tmp_path / "m.gguf"
    command = ["quantize", str(LLAMA), "-o", str(out), "--scheme", "q4_0", "--method", "rtn"]
    result = CliRunner().invoke(app, [*command, "--report-tokens", "0"])
    assert result.exit_code == 0, result.output
    assert out.read_bytes()[:4] == b"GGUF"
    assert "bits a weight" in result.output
