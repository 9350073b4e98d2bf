"""The null backend: predictable outputs, and refusal of what the bookkeeping above got wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.null import NextToken, NullBackend
from octavo.backends.testing import PagedSequences, run_greedy, run_tokens
from octavo.errors import BackendError
from octavo.graph import Graph, GraphBuilder
from octavo.models import ModelConfig, RopeConfig
from octavo.weights import Checkpoint

CONFIG = ModelConfig(
    architecture="llama",
    name="nothing",
    vocab_size=50,
    hidden_size=8,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=8,
    intermediate_size=8,
    norm_eps=1e-5,
    context_length=128,
    rope=RopeConfig(10000.0, 8),
    eos_token_ids=(7,),
)


def compiled(next_token: NextToken | None = None) -> Executable:
    checkpoint = Checkpoint(Path("none"), "gguf", {}, {}, 0)
    options = BackendOptions(block_size=4, max_tokens=64, max_seqs=64)
    return NullBackend(next_token).compile(_graph(), checkpoint, CONFIG, options)


def _graph() -> Graph:
    g = GraphBuilder()
    return g.build(g.select_rows(g.embed(g.weight("table", (50, 50)))))


def test_counts_up_past_the_end_token_and_wraps() -> None:
    assert run_greedy(compiled(), [3, 4], 5) == [5, 6, 8, 9, 10]
    assert run_greedy(compiled(), [48], 3) == [49, 0, 1]


def test_follows_a_script_even_to_the_end_token() -> None:
    script = compiled(lambda token, position: 7 if position >= 2 else 20 + position)
    assert run_greedy(script, [1], 4) == [20, 21, 7, 7]


def test_logits_depend_on_the_context_and_not_on_chunks() -> None:
    tokens = [5, 9, 9, 1, 30, 2, 2, 11, 4]
    whole, single = (run_tokens(compiled(), tokens, chunk) for chunk in (9, 1))
    np.testing.assert_array_equal(whole, single)
    other = run_tokens(compiled(), [6, *tokens[1:]], 9)
    assert (other[-1] != whole[-1]).any()


def test_refuses_a_slot_that_holds_another_position() -> None:
    executable = compiled()
    executable.allocate_kv(4)
    paged = PagedSequences(4, 4)
    paged.open()
    executable.forward(paged.step({0: [1, 2, 3, 4, 5]}))
    step = paged.step({0: [6]})
    step.block_table[0] = step.block_table[0][::-1].copy()
    step.slots[:] = step.block_table[0][1] * 4 + 1
    with pytest.raises(BackendError, match="is read as position 0: got position 4"):
        executable.forward(step)


def test_copied_blocks_hold_the_same_context() -> None:
    executable = compiled()
    executable.allocate_kv(4)
    paged = PagedSequences(4, 4)
    paged.open()
    first = paged.step({0: [1, 2, 3]})
    executable.forward(first)
    source = int(first.block_table[0, 0])
    target = (source + 1) % 4
    executable.copy_blocks(np.array([[source, target]], np.int32))
    step = paged.step({0: [4]})
    expected = executable.forward(step).copy()
    step.block_table[:] = target
    step.slots[:] = target * 4 + 3
    np.testing.assert_array_equal(executable.forward(step), expected)


def test_no_logit_rows_give_no_logits() -> None:
    executable = compiled()
    executable.allocate_kv(2)
    paged = PagedSequences(4, 2)
    paged.open()
    assert executable.forward(paged.step({0: [1, 2]}, rows=[])).shape == (0, 50)


def test_unknown_backend_lists_the_known() -> None:
    with pytest.raises(BackendError, match="no 'tpu'; known: cpu, null, reference"):
        get_backend("tpu")
