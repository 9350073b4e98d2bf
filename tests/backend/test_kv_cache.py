"""The KV cache of the CPU backend: what a recycled block holds must not show, and what it costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.cpu.executable import CpuExecutable
from octavo.backends.testing import PagedSequences, float_tensor
from octavo.graph import AttentionAttrs, Graph, GraphBuilder, KvWriteAttrs
from octavo.models.config import ModelConfig, RopeConfig
from octavo.weights import Checkpoint, Tensor

QUERY_HEADS, KV_HEADS, HEAD_DIM = 6, 2, 64
GOOD_ROWS = 40
NAN_ROW, INFINITE_ROW, ZERO_ROW = GOOD_ROWS, GOOD_ROWS + 1, GOOD_ROWS + 2
DTYPES = ("f32", "f16", "bf16", "int8", "int4")


def tables() -> dict[str, Tensor]:
    """Rows of q, k and v by token; the last ones have keys and values out of the ordinary."""
    rng = np.random.default_rng(7)
    widths = {"q": QUERY_HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
    found = {}
    for name, width in widths.items():
        rows = rng.normal(size=(GOOD_ROWS + 3, width)).astype(np.float32)
        if name != "q":
            rows[NAN_ROW], rows[INFINITE_ROW], rows[ZERO_ROW] = np.nan, np.inf, 0.0
        found[name] = float_tensor(name, rows)
    return found


def attention_graph(tensors: dict[str, Tensor]) -> Graph:
    builder = GraphBuilder()
    q, k, v = (builder.embed(builder.weight(n, tensors[n].shape), name=f"{n}.rows") for n in "qkv")
    builder.kv_write(k, v, KvWriteAttrs(0, KV_HEADS, HEAD_DIM))
    attrs = AttentionAttrs(0, QUERY_HEADS, KV_HEADS, HEAD_DIM, scale=HEAD_DIM**-0.5)
    return builder.build(builder.select_rows(builder.attention(q, attrs)))


def compiled(kv_dtype: str) -> Executable:
    tensors = tables()
    graph = attention_graph(tensors)
    config = ModelConfig(
        architecture="attention",
        name="attention",
        vocab_size=int(graph.output.shape[1]),
        hidden_size=1,
        num_layers=1,
        num_heads=QUERY_HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        intermediate_size=1,
        norm_eps=1e-6,
        context_length=1024,
        rope=RopeConfig(10000.0, HEAD_DIM),
    )
    checkpoint = Checkpoint(Path("attention"), "gguf", {}, tensors, 0)
    options = BackendOptions(kv_dtype=kv_dtype, num_threads=1, max_tokens=64, max_seqs=64)
    return get_backend("cpu").compile(graph, checkpoint, config, options)


def attend(executable: Executable, tokens: list[int], chunk: int) -> np.ndarray:
    """Rows of a new sequence on blocks 0 and 1 of the memory as it is."""
    paged = PagedSequences(executable.block_size, 2)
    paged.open()
    parts = [tokens[i : i + chunk] for i in range(0, len(tokens), chunk)]
    return np.concatenate([executable.forward(paged.step({0: part})).copy() for part in parts])


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("kv_dtype", DTYPES)
def test_what_a_block_held_before_does_not_show(kv_dtype: str, chunk: int) -> None:
    executable = compiled(kv_dtype)
    tokens = list(range(GOOD_ROWS - 3))
    executable.allocate_kv(2)
    fresh = attend(executable, tokens, chunk)
    attend(executable, [NAN_ROW, INFINITE_ROW] * 32, 64)
    assert np.isfinite(fresh).all()
    assert np.array_equal(attend(executable, tokens, chunk), fresh)
    executable.close()


@pytest.mark.parametrize("kv_dtype", DTYPES)
def test_zero_keys_and_values_give_zero(kv_dtype: str) -> None:
    """A scale of zero must not be divided by."""
    executable = compiled(kv_dtype)
    executable.allocate_kv(2)
    assert not attend(executable, [ZERO_ROW] * 40, 64).any()
    executable.close()


def test_bytes_of_a_block() -> None:
    numbers = 32 * KV_HEADS * 2 * HEAD_DIM
    scales = 32 * KV_HEADS * 2 * 4
    expected = {"f32": 4 * numbers, "f16": 2 * numbers, "bf16": 2 * numbers}
    expected["int8"] = numbers + scales
    anchors, groups = 2 * KV_HEADS * HEAD_DIM, 32 * KV_HEADS * (2 * HEAD_DIM // 32 + 3) * 2
    expected["int4"] = numbers // 2 + anchors + groups
    for kv_dtype, num_bytes in expected.items():
        executable = compiled(kv_dtype)
        assert executable.plan.kv_bytes_per_block == num_bytes
        executable.close()


def test_a_profile_names_the_regions_of_its_block_and_their_seconds() -> None:
    executable = compiled("f32")
    assert isinstance(executable, CpuExecutable)
    executable.allocate_kv(2)
    with executable.profile() as regions:
        attend(executable, [0, 1, 2], 1)
    seconds = dict(regions)
    assert seconds["attention"] > 0
    assert min(seconds.values()) >= 0
    attend(executable, [0, 1, 2], 1)
    assert dict(regions) == seconds  # it ended with the block
    with executable.profile() as nothing:
        pass
    assert [name for name, _ in nothing] == [name for name, _ in regions]
    assert not any(s for _, s in nothing)
    executable.close()
