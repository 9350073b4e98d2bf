"""What every handler shares: the engine's client, the tokenizer, names, metrics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fastapi import Request

from octavo.engine.admission import refusal
from octavo.engine.live import Taker
from octavo.engine.messages import Ready
from octavo.engine.options import EngineOptions
from octavo.engine.process import EngineProgress, EngineState
from octavo.engine.stats import EngineStats
from octavo.engine.types import Delta
from octavo.engine.types import Request as EngineRequest
from octavo.errors import OctavoError
from octavo.parsing import Dialect, dialect_of
from octavo.serving.errors import RETRY_AFTER_S, ApiError, not_ready
from octavo.serving.keys import load_keyring
from octavo.serving.metrics import Metrics
from octavo.serving.options import ServerOptions
from octavo.serving.record import current_record
from octavo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.serving.rpc import RpcServer
    from octavo.serving.storage import Storage

Result = TypeVar("Result")
_adapter: ContextVar[str] = ContextVar("octavo_adapter", default="")
in_background: ContextVar[bool] = ContextVar("in_background", default=False)
"""Set in tasks whose requests give way to those of clients."""
LONG_TEXT = 20_000  # characters from which tokenization leaves the event loop


class EngineClient(Protocol):
    """The engine as the server sees it; engine.process.EngineProcess is one."""

    options: EngineOptions
    state: EngineState
    ready_info: Ready | None
    num_restarts: int

    @property
    def pid(self) -> int:
        """Process id of the engine; 0 while there is none."""

    async def start(self) -> None:
        """Begin to start the engine; returns at once."""

    async def wait_located(self) -> str:
        """The model's path on this machine."""

    def batches(
        self, request: EngineRequest, taker: Taker | None = None
    ) -> AsyncGenerator[list[Delta]]:
        """Deltas of a request, those together that wait together; closing the generator aborts
        it. taker: may be given plain ones instead, while the generator waits."""

    def end_sample(self, request_id: str, index: int) -> None:
        """Stop one sample of a request that has begun to answer."""

    async def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter under a name that is in `options.lora` from then on."""

    async def unload_adapter(self, name: str) -> None:
        """Forget it."""

    async def stats(self, timeout_s: float = 5.0) -> EngineStats:
        """A snapshot of the engine's counters."""

    @property
    def full_for_s(self) -> float | None:
        """Seconds after which the full queue may have room; None while it has."""

    def progress(self) -> EngineProgress:
        """Whether what runs gets on; never waits."""

    async def close(self) -> None:
        """Stop the engine."""


class Serving:
    """One per app; handlers get it by `serving_of(request)`."""

    def __init__(self, client: EngineClient, options: ServerOptions) -> None:
        self.client, self.options = client, options
        self.names = options.served_model_names or (client.options.model,)
        self.keyring = load_keyring(options.api_keys, options.api_key_file)
        self.metrics = Metrics(self.names[0], options.metrics_compat)
        self.metrics.kv_dtype = client.options.kv_dtype
        self.metrics.prefix_caching = client.options.enable_prefix_caching
        self.metrics.watch_engine_process(lambda: client.pid)
        self.created = int(time.time())
        self.num_interactive = 0  # requests of clients that are being answered
        self.storage: Storage | None = None
        self.rpc: RpcServer | None = None
        self._drained_at: float | None = None  # when the server stops
        self._tokenizer: Tokenizer | None = None
        self._dialect: Dialect | None = None
        self._tokenizer_state = "loading"
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the engine and, beside it, load the tokenizer."""
        await self.client.start()
        self._task = asyncio.create_task(self._load_tokenizer(), name="tokenizer")

    async def wait_tokenizer(self) -> None:
        """Return when the tokenizer is loaded, or cannot be."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Stop everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()

    async def _load_tokenizer(self) -> None:
        try:
            path = await self.client.wait_located()
            self._tokenizer = await asyncio.to_thread(_load, path)
            if self._tokenizer is not None:
                parsers = self.options.tool_parser, self.options.reasoning_parser
                self._dialect = await asyncio.to_thread(dialect_of, self._tokenizer, *parsers)
            self._tokenizer_state = "ready"
        except OctavoError as error:
            self._tokenizer_state = str(error)

    def drain_for(self, limit_s: float) -> None:
        """Take no more requests; what runs may go on for so long."""
        self._drained_at = time.monotonic() + limit_s

    @property
    def is_draining(self) -> bool:
        """Whether the server is about to stop."""
        return self._drained_at is not None

    @property
    def num_running(self) -> int:
        """Requests that are being answered."""
        return max(self.num_interactive, self.client.progress().num_live)

    @property
    def retry_after_s(self) -> int:
        """When a client that is turned away now may come again."""
        if self._drained_at is None:
            return RETRY_AFTER_S
        return max(RETRY_AFTER_S, math.ceil(self._drained_at - time.monotonic()))

    @property
    def waiting_for(self) -> tuple[str, str] | None:
        """(phase, detail) while requests cannot be taken, None when they can."""
        state = self.client.state
        if self.is_draining:
            return "draining", "the server is about to stop"
        if state.phase != "ready":
            return state.phase, state.detail
        if self._tokenizer_state != "ready":
            return "starting", f"tokenizer: {self._tokenizer_state}"
        return None

    @property
    def task(self) -> str:
        """What the model does: "generate", "embed" or "score"."""
        info = self.client.ready_info
        return "generate" if info is None else info.task

    @property
    def max_model_len(self) -> int | None:
        """Tokens of one request that always fit; None until the engine has told."""
        info = self.client.ready_info
        return None if info is None else info.max_model_len

    def check_ready(self, wanted: str = "") -> None:
        """Raise 503 while requests cannot be taken, 400 for a task that the model does not do.
        Scores come from a model for embeddings too."""
        waiting = self.waiting_for
        if waiting is not None:
            self.metrics.refused(waiting[0])
            raise not_ready(*waiting, self.retry_after_s)
        if wanted not in ("", self.task) and (wanted, self.task) != ("score", "embed"):
            raise ApiError(400, f"model: {refusal(wanted, self.task)}", param="model")

    @property
    def adapters(self) -> dict[str, str]:
        """Those that requests may name as their model, and their folders."""
        return {n: path for n, path in self.client.options.lora.items() if n not in self.names}

    @property
    def all_names(self) -> tuple[str, ...]:
        """The model's names, then those of its adapters."""
        return (*self.names, *self.adapters)

    def check_model(self, name: str) -> None:
        """Raise 404 for a model that is not served. What this task asks of the engine from here on
        is for this model: an adapter, or the base."""
        record = current_record()
        is_served = name in self.all_names
        if record is not None and is_served:
            record.model = name
        _adapter.set("" if name in self.names else name)
        if not is_served:
            raise ApiError(
                404,
                f"The model {name!r} does not exist; this server has {', '.join(self.all_names)}.",
                param="model",
                code="model_not_found",
            )

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None if the model has none: then only token ids go in and out."""
        return self._tokenizer

    def need_tokenizer(self, param: str) -> Tokenizer:
        """The tokenizer, or a 400 that says token ids are needed."""
        if self._tokenizer is None:
            message = f"{param}: this model has no tokenizer; send token ids to /v1/completions"
            raise ApiError(400, message, param=param)
        return self._tokenizer

    def need_dialect(self, param: str) -> Dialect:
        """How the model talks, or a 400 as for the tokenizer."""
        self.need_tokenizer(param)
        assert self._dialect is not None  # loaded together with the tokenizer
        return self._dialect


def chosen_adapter() -> str:
    """The adapter that the model of this task's request is; "" for none."""
    return _adapter.get()


def serving_of(request: Request) -> Serving:
    """The app's Serving."""
    found: Serving = request.app.state.serving
    return found


async def off_loop(length: int, work: Callable[..., Result], *args: Any) -> Result:
    """work(*args), in a thread if a text of `length` characters makes it slow."""
    return await asyncio.to_thread(work, *args) if length > LONG_TEXT else work(*args)


def _load(path: str) -> Tokenizer | None:
    from octavo.tokenizer import load_tokenizer
    from octavo.weights import open_checkpoint

    return load_tokenizer(open_checkpoint(path))
