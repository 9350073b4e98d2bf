"""Where logits come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from octavo.backends.base import Floats
from octavo.engine import Engine, EngineOptions, EnginePlan
from octavo.eval.windows import Window
from octavo.weights.cache import Progress


class LogitsSource(Protocol):
    """Something that predicts. Used for one window at a time."""

    @property
    def name(self) -> str:
        """For tables and messages."""
        ...

    @property
    def vocab_size(self) -> int: ...

    def logits(self, window: Window) -> Iterator[Floats]:
        """Logits of the window's scored predictions, in order and in pieces [n, vocab_size] of any
        size, each valid until the next is asked for."""
        ...


class EngineSource:
    """An engine as a source; closing it closes the engine."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.engine = engine
        self.vocab_size = engine.config.vocab_size

    def logits(self, window: Window) -> Iterator[Floats]:
        return self.engine.iter_logits(window.ids[:-1], window.first)

    def token_ids(self, text: str) -> list[int]:
        """The text in tokens, with the model's begin token. Raises InvalidParameterError for a
        model without tokenizer."""
        from octavo.errors import InvalidParameterError

        if self.engine.tokenizer is None:
            raise InvalidParameterError("text", "this model has no tokenizer")
        return self.engine.tokenizer.encode(text, parse_special=False)

    @property
    def bos(self) -> int | None:
        """The begin token that every window needs, or None."""
        tokenizer = self.engine.tokenizer
        return tokenizer.bos_token_id if tokenizer is not None and tokenizer.add_bos else None

    def close(self) -> None:
        """Free the model. Idempotent."""
        self.engine.close()


def open_source(
    model: str,
    *,
    name: str | None = None,
    context: int = 512,
    weights: str = "native",
    kv_dtype: str = "auto",
    products: str = "auto",
    backend: str = "cpu",
    num_threads: int = 0,
    progress: Progress | None = None,
    report: Callable[[EnginePlan], None] | None = None,
) -> EngineSource:
    """Load a model for windows of `context` tokens. The arguments are those of EngineOptions.

    Raises ModelError, BackendError, MemoryPlanError, or InvalidParameterError if the model's own
    context is shorter.
    """
    options = EngineOptions(
        model,
        backend=backend,
        weights=weights,
        kv_dtype=kv_dtype,
        products=products,
        num_threads=num_threads,
        max_model_len=context,
        num_kv_blocks=-(-context // EngineOptions.block_size),
        enable_prefix_caching=False,
    )
    engine = Engine.from_options(options, progress, report, grammars=False)
    return EngineSource(name or f"{model}, {weights} weights", engine)
