"""Engines on the null backend, whose tokens are scripted, and a tokenizer of 256 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.backends import BackendOptions
from octavo.backends.null import NextToken, NullBackend, NullExecutable
from octavo.decoding.params import SamplingParams
from octavo.engine import Collector, Delta, Engine, EngineOptions, Request, RequestOutput
from octavo.engine.planning import EnginePlan, plan_engine
from octavo.graph import Graph, Value
from octavo.machine import Memory
from octavo.models import ModelConfig, RopeConfig
from octavo.tokenizer.base import Tokenizer
from octavo.tokenizer.special import SpecialTokens
from octavo.weights import Checkpoint

BOS, EOS, VOCAB = 256, 257, 260
CONTEXT = 128
MEMORY = Memory(limit=10**9, available=10**9, source="test")

CONFIG = ModelConfig(
    architecture="llama",
    name="scripted",
    vocab_size=VOCAB,
    hidden_size=8,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=8,
    intermediate_size=8,
    norm_eps=1e-5,
    context_length=CONTEXT,
    rope=RopeConfig(10000.0, 8),
    eos_token_ids=(EOS,),
)


class ByteEncoder:
    """A token for each byte of UTF-8."""

    def encode(self, text: str, parse_special: bool) -> list[int]:
        return list(text.encode())


def byte_tokenizer(template: str | None = None) -> Tokenizer:
    """Ids 0 to 255 are bytes, then <s>, </s> and two unused ones."""
    pieces = [f"<0x{byte:02X}>" for byte in range(256)] + ["<s>", "</s>", "<u1>", "<u2>"]
    special = SpecialTokens(
        bos_id=BOS, eos_ids=(EOS,), prefix_ids=(BOS,), hidden_ids=frozenset({BOS, EOS})
    )
    return Tokenizer(
        pieces=pieces,
        style="spm",
        encoder=ByteEncoder(),
        special=special,
        templates={"default": template} if template else {},
        byte_ids=frozenset(range(256)),
    )


def spelling(answer: str | bytes, prompt_len: int) -> NextToken:
    """A script that answers with these bytes, whatever the prompt, and then ends."""
    data = answer.encode() if isinstance(answer, str) else answer

    def following(token: int, position: int) -> int:
        at = position - prompt_len + 1
        return data[at] if 0 <= at < len(data) else EOS

    return following


def null_options(**options: Any) -> EngineOptions:
    """Small blocks and budgets, so that little work meets every limit."""
    defaults = {"block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 16}
    return EngineOptions("scripted", backend="null", **(defaults | options))


def null_engine(
    script: NextToken | None = None,
    tokenizer: Tokenizer | None = None,
    executable: NullExecutable | None = None,
    **options: Any,
) -> Engine:
    """An engine without a model: a token is followed by the next id unless scripted."""
    settings = null_options(**options)
    if executable is None:
        executable = null_executable(script, settings)
    return Engine(executable, tokenizer, settings, _plan(executable, settings))


def null_executable(script: NextToken | None, options: EngineOptions) -> NullExecutable:
    """The null backend compiled for these options."""
    limits = BackendOptions(
        products=options.products,
        block_size=options.block_size,
        max_tokens=options.max_num_batched_tokens,
        max_seqs=options.max_num_seqs,
    )
    checkpoint = Checkpoint(Path("none"), "gguf", {}, {}, 0)
    graph = Graph([], Value("none", (), "input"), {})
    executable = NullBackend(script).compile(graph, checkpoint, CONFIG, limits)
    assert isinstance(executable, NullExecutable)
    return executable


def _plan(executable: NullExecutable, options: EngineOptions) -> EnginePlan:
    return plan_engine(executable.plan, CONTEXT, options, MEMORY, 1, "scripted")


def request(name: str, ids: Sequence[int], priority: int = 0, **params: Any) -> Request:
    """A greedy request for 8 tokens, unless params say otherwise."""
    defaults = {"max_tokens": 8, "temperature": 0.0}
    return Request(name, list(ids), SamplingParams(**(defaults | params)), priority=priority)


def drain(engine: Engine, max_steps: int = 1000) -> list[Delta]:
    """Step until nothing is left to do."""
    deltas: list[Delta] = []
    for _ in range(max_steps):
        if not engine.has_work():
            return deltas
        deltas += engine.step()
    raise AssertionError("the engine does not come to an end")


def run(engine: Engine, *requests: Request) -> list[RequestOutput]:
    """Add all requests at once, run to the end, and collect their outputs."""
    for one in requests:
        engine.add_request(one)
    collectors = {one.request_id: Collector(one) for one in requests}
    for delta in drain(engine):
        collectors[delta.request_id].add(delta)
    assert all(c.output.finished for c in collectors.values())
    assert engine.stats().num_used_blocks == 0
    return [c.output for c in collectors.values()]
