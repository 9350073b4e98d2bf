"""The reference executable: paging, memory, sampling; its numbers are judged elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.reference import weights
from octavo.backends.testing import PagedSequences, random_tensor, run_tokens
from octavo.decoding import SamplingParams, SamplingRow, build_batch
from octavo.errors import BackendError, UnsupportedError
from octavo.graph import Graph
from octavo.models import ModelConfig, build_graph, config_from
from octavo.records import replace
from octavo.weights import SCHEMES, Checkpoint, Tensor, open_checkpoint

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny" / "llama"
OPTIONS = BackendOptions(block_size=4, max_tokens=16, max_seqs=16)
TOKENS = [5, 17, 301, 2, 2, 77, 9, 130, 64, 250, 31]


def model(**changes: Tensor) -> tuple[Graph, Checkpoint, ModelConfig]:
    checkpoint = open_checkpoint(GOLDEN)
    tensors = {**checkpoint.tensors, **changes}
    checkpoint = replace(checkpoint, tensors=tensors)
    config = config_from(checkpoint)
    return build_graph(config, tensors), checkpoint, config


def compiled(options: BackendOptions = OPTIONS, **changes: Tensor) -> Executable:
    return get_backend("reference").compile(*model(**changes), options)


@settings(max_examples=10, deadline=None)
@given(chunk=st.integers(1, 11), block_size=st.integers(1, 9))
def test_logits_do_not_depend_on_chunks_and_blocks(chunk: int, block_size: int) -> None:
    whole = run_tokens(compiled(), TOKENS, len(TOKENS))
    paged = run_tokens(compiled(replace(OPTIONS, block_size=block_size)), TOKENS, chunk)
    np.testing.assert_allclose(paged, whole, rtol=0, atol=1e-5)


def test_sequences_of_one_step_do_not_see_each_other() -> None:
    executable = compiled()
    executable.allocate_kv(8)
    paged = PagedSequences(4, 8)
    sequences = {paged.open(): TOKENS[:4], paged.open(): TOKENS[4:]}
    together = executable.forward(paged.step(sequences))
    alone = [run_tokens(compiled(), tokens, 16) for tokens in sequences.values()]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=0, atol=1e-5)


def test_copied_blocks_continue_alike() -> None:
    executable = compiled()
    executable.allocate_kv(4)
    paged = PagedSequences(4, 4)
    paged.open()
    first = paged.step({0: TOKENS[:3]})
    executable.forward(first)
    source = int(first.block_table[0, 0])
    target = (source + 1) % 4
    executable.copy_blocks(np.array([[source, target]], np.int32))
    step = paged.step({0: TOKENS[3:4]})
    expected = executable.forward(step).copy()
    step.block_table[:] = target
    step.slots[:] = target * 4 + 3
    np.testing.assert_array_equal(executable.forward(step), expected)


def test_a_slot_never_written_is_not_read() -> None:
    executable = compiled()
    executable.allocate_kv(4)
    paged = PagedSequences(4, 4)
    paged.open()
    paged.step({0: TOKENS[:3]})  # never run
    with pytest.raises(BackendError, match=r"layer 0 holds NaN at position 0 .*never written"):
        executable.forward(paged.step({0: TOKENS[3:4]}))


def test_no_step_before_allocation_and_after_close() -> None:
    executable = compiled()
    paged = PagedSequences(4, 4)
    paged.open()
    step = paged.step({0: TOKENS[:3]})
    with pytest.raises(BackendError, match="no KV memory; call allocate_kv"):
        executable.forward(step)
    executable.allocate_kv(4)
    executable.forward(step)
    executable.close()
    executable.close()
    with pytest.raises(BackendError, match="no KV memory; call allocate_kv"):
        executable.forward(step)


def test_step_samples_the_wanted_rows() -> None:
    executable = compiled()
    executable.allocate_kv(4)
    paged = PagedSequences(4, 4)
    paged.open()
    step = paged.step({0: TOKENS}, rows=[10, 3, 10])
    rows = [SamplingRow(SamplingParams(temperature=0), 0, TOKENS, [])] * 3
    result = executable.step(step, build_batch(rows))
    best = run_tokens(compiled(), TOKENS, 16).argmax(axis=1)
    assert result.ids.tolist() == best[[10, 3, 10]].tolist()


@pytest.mark.parametrize("mode", ["native", "float"])
def test_weights_that_do_not_fit_are_expanded_on_each_use(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_tokens(compiled(), TOKENS, 16)
    monkeypatch.setattr(weights, "KEPT_BYTES", 40_000)
    executable = compiled(replace(OPTIONS, weights=mode))
    np.testing.assert_array_equal(run_tokens(executable, TOKENS, 16), expected)
    total = sum(4 * tensor.size for tensor in model()[1].tensors.values())
    assert executable.plan.weight_bytes == (40_000 if mode == "native" else total)


def test_plan_counts_layers_heads_and_the_largest_step() -> None:
    backend = get_backend("reference")
    plan = backend.plan(*model(), OPTIONS)
    assert plan == compiled().plan
    assert plan.kv_bytes_per_block == 3 * 2 * 2 * 16 * 4 * 4  # layers, k and v, heads, size, float
    half = backend.plan(*model(), replace(OPTIONS, kv_dtype="f16"))
    assert half.kv_bytes_per_block * 2 == plan.kv_bytes_per_block
    assert plan.arena_bytes >= 16 * 128 * 3 * 4  # gate, its activation and up


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (replace(OPTIONS, kv_dtype="bf16"), "kv_dtype 'bf16': expected one of auto, f32, f16"),
        (replace(OPTIONS, weights="int3"), "weights 'int3': expected 'native' or 'float'"),
    ],
)
def test_options_it_cannot_serve(options: BackendOptions, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        compiled(options)


def test_tensors_it_cannot_serve() -> None:
    name = "blk.0.ffn_up.weight"
    scheme = SCHEMES["Q8_1"]
    strange = Tensor(name, (128, 64), scheme, np.zeros(scheme.num_bytes((128, 64)), np.uint8))
    with pytest.raises(UnsupportedError, match=f"'{name}' has type Q8_1"):
        compiled(**{name: strange})
    graph, checkpoint, config = model()
    other = replace(checkpoint, tensors={})
    with pytest.raises(BackendError, match=r"tensor 'token_embd.weight' is not in"):
        get_backend("reference").compile(graph, other, config, OPTIONS)
    wrong = {**checkpoint.tensors, name: random_tensor(name, "F16", (127, 64), 0)}
    with pytest.raises(BackendError, match=rf"'{name}': got \[127, 64\], expected \[128, 64\]"):
        get_backend("reference").compile(graph, replace(checkpoint, tensors=wrong), config, OPTIONS)
