"""LLM: a model in this process, with the calls and results vLLM users know."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from octavo.decoding.params import SamplingParams
from octavo.decoding.pooling import Pooling
from octavo.engine.chat import Chats
from octavo.engine.collect import Collector
from octavo.engine.embedding import EMBED_ONLY, EmbeddingOutput, ScoringOutput, vector_of
from octavo.engine.engine import Engine
from octavo.engine.given import Message, Prompt, Prompts, conversations, listed_prompts
from octavo.engine.options import EngineOptions
from octavo.engine.pairs import align, cosine, prompted, score_of
from octavo.engine.planning import EnginePlan
from octavo.engine.shared import Mailbox, SharedEngine
from octavo.engine.stats import EngineStats
from octavo.engine.types import Delta, Request, RequestOutput
from octavo.errors import InvalidParameterError
from octavo.models.config import ModelConfig
from octavo.records import replace
from octavo.tokenizer.base import Tokenizer
from octavo.weights.cache import Progress

if TYPE_CHECKING:
    from octavo.backends.base import Floats
    from octavo.engine.progress import TokenProgress

Params: TypeAlias = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A loaded model. Thread-safe: requests of several threads or tasks share its steps.

        with LLM("smollm2") as llm:
            outputs = llm.generate(["Hello", "Once upon a time"], SamplingParams(max_tokens=32))

    model and **options are the fields of EngineOptions. progress(done_bytes, total_bytes, label)
    is called while the model is fetched, report(plan) before its weights are packed.
    Raises ModelError, BackendError or MemoryPlanError.
    """

    def __init__(
        self,
        model: str,
        *,
        progress: Progress | None = None,
        report: Callable[[EnginePlan], None] | None = None,
        **options: Any,
    ) -> None:
        self._start(Engine.from_options(EngineOptions(str(model), **options), progress, report))

    @classmethod
    def from_engine(cls, engine: Engine) -> Self:
        """Around an engine made elsewhere, which this LLM then owns."""
        llm = cls.__new__(cls)
        llm._start(engine)
        return llm

    def _start(self, engine: Engine) -> None:
        self.config: ModelConfig = engine.config
        self.tokenizer: Tokenizer | None = engine.tokenizer
        self.options: EngineOptions = engine.options
        self.plan: EnginePlan = engine.plan
        self._engine_check = engine.check
        self._grammars = engine.grammars
        self._shared = SharedEngine(engine)
        self._ids = itertools.count()
        self._chats: Chats | None = None

    def generate(
        self,
        prompts: Prompts,
        params: Params = None,
        *,
        lora: str | Sequence[str] = "",
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete prompts (texts or lists of token ids), in order, batched together. One may be
        given as {"prompt": text} or {"prompt_token_ids": ids} too.

        params: for all, or a list with one for each. lora: the name of an adapter given to this
        LLM as `lora={name: folder}`, for all, or a list with one for each; "" for none. use_tqdm:
        show progress if stderr is a terminal. Raises RequestError before anything runs if a prompt
        or parameter is wrong. An interrupt aborts what runs and passes on.
        """
        listed = listed_prompts(prompts)
        count = len(listed)
        each = zip(listed, _per_prompt(params, count), _per_prompt_lora(lora, count), strict=True)
        requests = [self._request(prompt, one, lora=name) for prompt, one, name in each]
        return self._run(requests, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: Params = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        lora: str = "",
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation, or a list of them, rendered by the model's chat template.

        tools: functions in OpenAI's shape. Each sample's `message` has the answer's thinking, text
        and tool calls; its `text` is all of it as the model wrote it. Raises TemplateError if the
        template refuses the messages, else as `generate`.
        """
        talks = conversations(messages)
        if self._chats is None:
            self._chats = Chats.of(self._need_tokenizer("messages"))
        chats, requests, tools = self._chats, [], tools or ()
        for talk, one in zip(talks, _per_prompt(params, len(talks)), strict=True):
            text = chats.prompt(
                talk,
                tools,
                add_generation_prompt=add_generation_prompt,
                chat_template=chat_template,
            )
            ids = chats.tokenizer.encode(text, add_special_tokens=False)
            requests.append(self._request(ids, chats.params(one, bool(tools)), text, lora))
        outputs = self._run(requests, use_tqdm)
        for output in outputs:
            chats.read(output, tools)
        return outputs

    def embed(
        self,
        prompts: Prompts,
        pooling: Pooling | None = None,
        *,
        prompt_name: str | None = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingOutput]:
        """Embeddings of texts or lists of token ids, in order, batched together. Needs an encoder
        or an LLM made with task="embed". pooling: None for what the model's files say. prompt_name:
        one of the model's texts to put before each text; "" for none, None for its usual one.
        """
        how, named = pooling or Pooling(), self.options.prompts
        name = self.options.default_prompt if prompt_name is None else prompt_name
        texts = [
            prompted(prompt, named, name) if isinstance(prompt, str) else prompt
            for prompt in listed_prompts(prompts)
        ]
        requests = [replace(self._request(text, EMBED_ONLY), pooling=how) for text in texts]
        return [EmbeddingOutput.of(output) for output in self._run(requests, use_tqdm)]

    def score(
        self, first: str | Sequence[str], second: str | Sequence[str], *, use_tqdm: bool = True
    ) -> list[ScoringOutput]:
        """How well texts go together: one first text with each second one, or pair by pair. By a
        cross-encoder's score, or by the cosine of embeddings where the model makes those. What is
        too long is cut off the second text.
        """
        pairs = align(
            *([text] if isinstance(text, str) else list(text) for text in (first, second))
        )
        if self.options.task == "embed":
            return self._score_by_angle(pairs, use_tqdm)
        outputs = self._run([self._pair(*pair) for pair in pairs], use_tqdm)
        sigmoid = self.config.encoder is None or self.config.encoder.sigmoid
        return [
            ScoringOutput(score_of(float(vector_of(o)[0]), sigmoid), o.prompt_token_ids)
            for o in outputs
        ]

    def _pair(self, first: str, second: str) -> Request:
        tokenizer = self._need_tokenizer("prompt")
        ids, start = tokenizer.encode_pair(first, second, self.plan.max_model_len)
        return replace(self._request(ids, EMBED_ONLY), pair_start=start)

    def _score_by_angle(self, pairs: list[tuple[str, str]], use_tqdm: bool) -> list[ScoringOutput]:
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        found = dict(zip(texts, self.embed(texts, use_tqdm=use_tqdm), strict=True))
        return [
            ScoringOutput(
                cosine(found[a].embedding, found[b].embedding),
                found[a].prompt_token_ids + found[b].prompt_token_ids,
            )
            for a, b in pairs
        ]

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, lora: str = ""
    ) -> Iterator[Delta]:
        """Deltas of one request as they come. Closing the iterator aborts the request."""
        request = self._request(prompt, params or SamplingParams(), lora=lora)
        mailbox = Mailbox()
        self._check(request)
        return self._stream(request, mailbox)

    async def astream(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> AsyncIterator[Delta]:
        """`stream` for asyncio; cancelling the reading task aborts the request."""
        request, mailbox = self._request(prompt, params or SamplingParams()), Mailbox()
        await asyncio.to_thread(self._check, request)
        await asyncio.to_thread(self._shared.add, request, mailbox)
        done = False
        try:
            while not done and (deltas := await asyncio.to_thread(self._shared.take, mailbox)):
                for delta in deltas:
                    done = delta.metrics is not None
                    yield delta
        finally:
            self._shared.drop(mailbox, [request.request_id])

    def logits(self, token_ids: Sequence[int]) -> Floats:
        """Logits after each of the ids, float32 [len(token_ids), vocab]; for evaluation."""
        ids = [int(token) for token in token_ids]
        return self._shared.call(lambda engine: engine.logits(ids))

    def stats(self) -> EngineStats:
        """The engine's counters."""
        return self._shared.call(lambda engine: engine.stats())

    def clear_prefix_cache(self) -> None:
        """Forget all cached prefixes."""
        self._shared.call(lambda engine: engine.clear_prefix_cache())

    def close(self) -> None:
        """Free the model. Idempotent; later requests raise EngineError."""
        self._shared.call(lambda engine: engine.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _stream(self, request: Request, mailbox: Mailbox) -> Iterator[Delta]:
        self._shared.add(request, mailbox)
        done = False
        try:
            while not done and (deltas := self._shared.take(mailbox)):
                for delta in deltas:
                    done = delta.metrics is not None
                    yield delta
        finally:
            self._shared.drop(mailbox, [request.request_id])

    def _run(self, requests: list[Request], use_tqdm: bool) -> list[RequestOutput]:
        for request in requests:
            self._check(request)
        collectors = {request.request_id: Collector(request) for request in requests}
        queue, mailbox, live = deque(requests), Mailbox(), len(requests)
        with _progress(len(requests), use_tqdm) as progress:
            try:
                while live:
                    self._shared.add_some(queue, mailbox)
                    for delta in self._shared.take(mailbox):
                        finished = collectors[delta.request_id].add(delta)
                        live -= finished
                        if progress is not None:
                            progress.update(len(delta.token_ids), finished)
            finally:
                self._shared.drop(mailbox, collectors)
        return [collector.output for collector in collectors.values()]

    def _check(self, request: Request) -> None:
        self._engine_check(request)
        self._grammars.compile(request.params.grammar)

    def _request(
        self, prompt: Prompt, params: SamplingParams, text: str | None = None, lora: str = ""
    ) -> Request:
        if isinstance(prompt, str):
            text = prompt
            ids = self._need_tokenizer("prompt").encode(prompt)
        else:
            ids = [_token_id(token) for token in prompt]
        name, now_s = str(next(self._ids)), time.monotonic()
        return Request(name, ids, params, text, arrival_s=now_s, lora=lora)

    def _need_tokenizer(self, param: str) -> Tokenizer:
        if self.tokenizer is None:
            raise InvalidParameterError(
                param, "this model has no tokenizer; give the prompt as a list of token ids"
            )
        return self.tokenizer


def _per_prompt(params: Params, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise InvalidParameterError(
            "params", f"got {len(params)} for {count} prompts; give one, or one for each"
        )
    return list(params)


def _per_prompt_lora(lora: str | Sequence[str], count: int) -> list[str]:
    names = [lora] * count if isinstance(lora, str) else list(lora)
    if len(names) != count:
        got = f"got {len(names)} for {count} prompts; give one, or one for each"
        raise InvalidParameterError("lora", got)
    return names


def _token_id(token: object) -> int:
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        raise InvalidParameterError("prompt", f"got {token!r}, expected token ids (integers)")
    return int(token.__index__())


def _progress(count: int, wanted: bool) -> AbstractContextManager[TokenProgress | None]:
    if not (wanted and sys.stderr.isatty()):
        return nullcontext()
    from octavo.engine.progress import TokenProgress

    return TokenProgress(count)
