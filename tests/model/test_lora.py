"""Adapters that peft made, on tiny models: its own logits, in any company, bit by bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.cpu.executable import CpuExecutable
from octavo.backends.testing import PagedSequences
from octavo.errors import BackendError
from octavo.graph import Graph
from octavo.models import ModelConfig, build_graph, config_from, fit_tensors
from octavo.models.adapters import read_adapter
from octavo.weights import Checkpoint, open_checkpoint
from octavo.weights.adapter import Adapter
from tests.model.test_gguf_twin import twin
from tests.support import quantized as make
from tests.support.lora import write_adapter

TESTS = Path(__file__).parent.parent
LORA = TESTS / "fixtures" / "lora"
TINY = TESTS / "golden" / "tiny" / "llama"
LLAMA = TESTS / "fixtures" / "families" / "llama-yarn"
BASES = {
    "all": LLAMA,
    "rslora": LLAMA,
    "patterns": LLAMA,
    "head": LLAMA,
    "joined": TESTS / "fixtures" / "families" / "phi3-longrope",
    "dora": LLAMA,
    "dora-joined": TESTS / "fixtures" / "families" / "phi3-longrope",
    "saved-head": LLAMA,
    "turned": TESTS / "golden" / "tiny" / "gpt2",
}
TOLERANCES = {("reference", "native"): 1e-4, ("cpu", "float"): 2e-2}
Model = tuple[Graph, Checkpoint, ModelConfig]


def opened(base: Path) -> Model:
    checkpoint = open_checkpoint(base)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    return build_graph(config, checkpoint.tensors), checkpoint, config


def adapter_of(name: str, model: Model) -> Adapter:
    graph, checkpoint, config = model
    return read_adapter(LORA / name, config, checkpoint, graph)


def compiled(
    model: Model, backend: str, weights: str, *names: str, rank: int = 8, num_threads: int = 0
) -> Executable:
    """With these adapters as numbers 0, 1, ..."""
    options = BackendOptions(
        weights=weights,
        kv_dtype="f32",
        num_threads=num_threads,
        max_tokens=128,
        max_seqs=128,
        max_adapter_rank=rank,
    )
    executable = get_backend(backend).compile(*model, options)
    for number, name in enumerate(names):
        executable.load_adapter(number, adapter_of(name, model))
    return executable


def logits_of(
    executable: Executable, rows: list[tuple[int, list[int]]], chunk: int = 128
) -> list[np.ndarray]:
    """Of sequences (adapter's number, ids) in one batch, fed in chunks."""
    executable.allocate_kv(16 * len(rows))
    paged = PagedSequences(executable.block_size, 16 * len(rows))
    for _ in rows:
        paged.open()
    parts: list[list[np.ndarray]] = [[] for _ in rows]
    at = 0
    while any(at < len(ids) for _, ids in rows):
        new = {i: ids[at : at + chunk] for i, (_, ids) in enumerate(rows) if at < len(ids)}
        step = paged.step(new)
        step.adapters = np.array([rows[i][0] for i in new], np.int32)
        found = executable.forward(step)
        for i, start in zip(new, step.query_start[:-1], strict=True):
            parts[i].append(found[start : start + len(new[i])].copy())
        at += chunk
    return [np.concatenate(part) for part in parts]


def expected(name: str) -> tuple[list[int], np.ndarray]:
    with np.load(LORA / name / "expected.npz") as arrays:
        return arrays["input_ids"].tolist(), arrays["logits"]


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(("backend", "weights"), TOLERANCES)
def test_logits_are_those_of_peft(name: str, backend: str, weights: str) -> None:
    ids, wanted = expected(name)
    rank = 32 if name == "saved-head" else 8
    executable = compiled(opened(BASES[name]), backend, weights, name, rank=rank)
    for chunk in (128, 7):
        (logits,) = logits_of(executable, [(0, ids)], chunk)
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=TOLERANCES[backend, weights])


def test_a_gguf_file_of_the_base(tmp_path: Path) -> None:
    """Its q and k have their rows in another order."""
    model = opened(TINY)
    copy = twin("llama")
    config = config_from(copy)
    other = (build_graph(config, copy.tensors), copy, config)
    q, kv, hidden = 64, 32, 64
    attention = "model.layers.{}.self_attn.{}_proj"
    modules = {attention.format(i, "q"): (q, hidden) for i in range(2)}
    modules |= {attention.format(i, "k"): (kv, hidden) for i in range(3)}
    folder = write_adapter(tmp_path, modules)
    results = []
    for graph, checkpoint, config in (model, other):
        executable = compiled((graph, checkpoint, config), "reference", "native")
        executable.load_adapter(0, read_adapter(folder, config, checkpoint, graph))
        results.append(logits_of(executable, [(0, list(range(3, 23)))])[0])
        (without,) = logits_of(executable, [(-1, list(range(3, 23)))])
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-4)
    assert np.abs(results[1] - without).max() > 0.1


@pytest.mark.parametrize("weights", ["float", "native"])
def test_company_changes_no_bit(weights: str) -> None:
    model = opened(LLAMA)
    others = ("all", "rslora", "head", "dora", "saved-head")
    executable = compiled(model, "cpu", weights, *others, rank=32)
    plain = get_backend("cpu").compile(
        *model, BackendOptions(weights=weights, kv_dtype="f32", max_tokens=128, max_seqs=128)
    )
    ids, _ = expected("all")
    rows = [(0, ids[:30]), (-1, ids[:20]), (1, ids[5:17]), (0, ids[3:9]), (2, ids[:11])]
    rows += [(3, ids[2:20]), (4, ids[:14]), (3, ids[:5])]
    together = logits_of(executable, rows)
    for chunk in (3, 1):
        for one, other in zip(together, logits_of(executable, rows, chunk), strict=True):
            np.testing.assert_array_equal(one, other)
    for row, found in zip(rows, together, strict=True):
        np.testing.assert_array_equal(logits_of(executable, [row])[0], found)
    (alone,) = logits_of_plain(plain, ids[:20])
    np.testing.assert_array_equal(alone, together[1])


@pytest.mark.parametrize("rank", [1, 17, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_any_rank_on_any_number_of_threads(
    tmp_path: Path, rank: int, dtype: type[np.floating[Any]]
) -> None:
    """Panels of 16 rows are filled up, and halves are kept as they are."""
    modules = {"self_attn.k_proj": (16, 32), "mlp.gate_proj": (64, 32), "mlp.down_proj": (32, 64)}
    named = {f"model.layers.{i}.{m}": shape for i in range(2) for m, shape in modules.items()}
    folder = write_adapter(tmp_path, named, rank=rank, size=0.2, dtype=dtype)
    model = opened(LLAMA)
    graph, checkpoint, config = model
    adapter = read_adapter(folder, config, checkpoint, graph)
    ids, _ = expected("all")
    rows = [(0, ids[:21]), (-1, ids[:9]), (0, ids[9:26])]
    found = []
    for backend, threads in (("reference", 0), ("cpu", 1), ("cpu", 3)):
        executable = compiled(model, backend, "float", rank=rank, num_threads=threads)
        executable.load_adapter(0, adapter)
        found.append(np.concatenate(logits_of(executable, rows)))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-3)
    np.testing.assert_array_equal(found[2], found[1])


def test_without_adapters_there_is_nothing_of_them_in_a_program() -> None:
    model = opened(LLAMA)
    ids, _ = expected("all")
    kinds = {}
    for rank in (0, 8):
        executable = compiled(model, "cpu", "native", rank=rank)
        assert isinstance(executable, CpuExecutable)
        with executable.profile() as regions:
            logits_of_plain(executable, ids)
        kinds[rank] = [kind for kind, _ in regions]
    assert "adapters" not in kinds[0]
    assert [kind for kind in kinds[8] if kind != "adapters"] == kinds[0]


def logits_of_plain(executable: Executable, ids: list[int]) -> list[np.ndarray]:
    executable.allocate_kv(8)
    paged = PagedSequences(executable.block_size, 8)
    paged.open()
    return [executable.forward(paged.step({0: ids})).copy()]


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}


@pytest.mark.parametrize("spread", [False, True], ids=["awq", "act-order"])
def test_a_quantized_base(tmp_path: Path, spread: bool) -> None:
    """Adapters read the int8 rows that products of quantized weights read, in their order."""
    pack = partial(make.gptq, group=32, spread=True) if spread else partial(make.awq, group=32)
    folder, dense = make.write_pair(TINY, tmp_path, GPTQ if spread else AWQ, pack)
    modules = {"self_attn.q_proj": (64, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128)}
    named = {f"model.layers.{i}.{m}": shape for i in range(3) for m, shape in modules.items()}
    adapter = write_adapter(tmp_path / "adapter", named, size=0.15)
    ids, _ = expected("all")
    executables = []
    for each, backend in ((dense, "reference"), (folder, "cpu")):
        model = opened(each)
        executables.append(compiled(model, backend, "native"))
        graph, checkpoint, config = model
        executables[-1].load_adapter(0, read_adapter(adapter, config, checkpoint, graph))
    reference, executable = executables
    (wanted,) = logits_of(reference, [(0, ids)])
    (found,) = logits_of(executable, [(0, ids)])
    assert np.std(found - wanted) < 0.05 * np.std(wanted)
    (other,) = logits_of(executable, [(-1, ids)])
    assert np.std(found - other) > 0.1 * np.std(wanted)
    rows = [(0, ids[:9]), (-1, ids[:5]), (0, ids[9:30])]
    for row, part in zip(rows, logits_of(executable, rows), strict=True):
        np.testing.assert_array_equal(logits_of(executable, [row])[0], part)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_loading_and_unloading(backend: str) -> None:
    model = opened(LLAMA)
    executable = compiled(model, backend, "float", "all")
    ids, wanted = expected("all")
    with pytest.raises(BackendError, match=r"number 0"):
        executable.load_adapter(0, adapter_of("rslora", model))
    executable.unload_adapter(0)
    with pytest.raises(BackendError, match="not loaded"):
        logits_of(executable, [(0, ids)])
    executable.load_adapter(0, adapter_of("all", model))
    np.testing.assert_allclose(logits_of(executable, [(0, ids)])[0], wanted, rtol=0, atol=2e-2)
    low = get_backend(backend).compile(*model, BackendOptions(max_adapter_rank=4))
    with pytest.raises(BackendError, match=r"lora.rslora.*rank"):
        low.load_adapter(0, adapter_of("rslora", model))
