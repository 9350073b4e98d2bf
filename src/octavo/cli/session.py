"""One engine in this process and one answer at a time: what `run` and `chat` stand on."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field

from octavo.cli.interrupt import Interrupt, deferred_interrupts
from octavo.cli.options import ONLY_ADAPTER, EngineChoices
from octavo.cli.parts import AnswerReader, Piece, reader_for
from octavo.errors import EngineError, UnsupportedError
from octavo.records import replace

if TYPE_CHECKING:
    from octavo.decoding import SamplingParams
    from octavo.engine import Delta, Engine
    from octavo.tokenizer import Tokenizer

Message = dict[str, str]


class Timing(Struct):
    """What one answer took. Seconds from the moment the request was added."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token_s: float | None = None
    total_s: float = 0.0

    @property
    def prefill_tps(self) -> float | None:
        """Prompt tokens computed (not taken from the cache) per second until the first token."""
        if not self.first_token_s:
            return None
        return (self.prompt_tokens - self.cached_tokens) / self.first_token_s

    @property
    def decode_tps(self) -> float | None:
        """Tokens after the first per second."""
        if self.first_token_s is None or self.output_tokens < 2:
            return None
        return (self.output_tokens - 1) / (self.total_s - self.first_token_s)

    def as_dict(self) -> dict[str, float | int | None]:
        """For --json."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "ttft_s": self.first_token_s,
            "total_s": self.total_s,
            "prefill_tokens_per_s": self.prefill_tps,
            "decode_tokens_per_s": self.decode_tps,
        }

    def __str__(self) -> str:
        prefill = f", {self.prefill_tps:.0f} tokens/s" if self.prefill_tps else ""
        decode = f", {self.decode_tps:.1f} tokens/s" if self.decode_tps else ""
        cached = f" ({self.cached_tokens} cached)" if self.cached_tokens else ""
        ttft = f"first token after {self.first_token_s:.3f} s" if self.first_token_s else "no token"
        return (
            f"prompt {self.prompt_tokens} tokens{cached}{prefill} · "
            f"output {self.output_tokens} tokens{decode} · {ttft}"
        )


class Answer(Struct):
    """One answer as it grows. reasoning: what was thought before; text: what was said; calls: of
    tools, by name and arguments; written: text and calls as the model writes them, for the next
    prompt."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    written: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    timing: Timing = field(default_factory=Timing)


class Session:
    """Owns an engine; `stream` runs it until one answer is done."""

    def __init__(self, engine: Engine, lora: str = "") -> None:
        """lora: the adapter to answer with, "" for none."""
        if engine.tokenizer is None:
            raise UnsupportedError(
                f"{engine.options.model}: this model has no tokenizer, so it cannot read text; "
                "LLM(...).generate takes and gives token ids"
            )
        self.engine = engine
        self.tokenizer: Tokenizer = engine.tokenizer
        self.last = Answer()
        self._lora = lora
        self._count = 0

    @classmethod
    def open(cls, model: str, choices: EngineChoices, chats: bool = True) -> Session:
        """Find or fetch the model, showing progress on stderr, and load it. From then on garbage
        is collected; what there is by then is not looked through again. chats: as of `Engine`."""
        from octavo.cli.progress import download_progress
        from octavo.engine import Engine

        options = choices.options(model)
        with download_progress() as progress:
            engine = Engine.from_options(options, progress, grammars=False, chats=chats)
        gc.freeze()
        gc.enable()
        return cls(engine, ONLY_ADAPTER if choices.lora is not None else "")

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, in tokens."""
        return self.engine.plan.max_model_len

    def chat_ids(self, messages: list[Message]) -> list[int]:
        """Token ids of a conversation under the model's chat template, ready for an answer."""
        text = self.tokenizer.render_chat(messages, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def prompt_ids(self, prompt: str, system: str | None, raw: bool) -> list[int]:
        """Token ids of one prompt; as a user message unless raw or the model has no template."""
        if raw or self.tokenizer.chat_template is None:
            return self.tokenizer.encode(prompt)
        messages = [{"role": "system", "content": system}] if system else []
        return self.chat_ids([*messages, {"role": "user", "content": prompt}])

    def stream(
        self, prompt_ids: list[int], params: SamplingParams, raw: bool = False
    ) -> Iterator[Piece]:
        """Yield the answer as it comes; `last` holds what is known so far. raw: nothing in it is
        thinking.

        Ctrl-C ends the answer with finish_reason "abort". Raises RequestError subclasses.
        """
        self.last = Answer(timing=Timing(prompt_tokens=len(prompt_ids)))
        plain = raw or self.tokenizer.chat_template is None
        reader = AnswerReader() if plain else reader_for(self.tokenizer, prompt_ids)
        if reader.shown_ids:
            params = replace(params, shown_special_ids=reader.shown_ids)
        with deferred_interrupts() as interrupt:
            yield from self._answer(prompt_ids, params, interrupt, reader)

    def close(self) -> None:
        self.engine.close()

    def _answer(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        interrupt: Interrupt,
        reader: AnswerReader,
    ) -> Iterator[Piece]:
        from octavo.engine import Request

        self._count += 1
        request_id = f"cli-{self._count}"
        start = time.perf_counter()
        request = Request(request_id, prompt_ids, params, arrival_s=time.monotonic())
        request.lora = self._lora
        self.engine.add_request(request)
        try:
            while self.last.finish_reason is None and self.engine.has_work():
                if interrupt.raised:
                    self.last.finish_reason = "abort"
                    yield from self._add(reader.push("", [], is_last=True))
                    break
                for delta in self.engine.step():
                    self._note(delta, time.perf_counter() - start)
                    is_last = delta.finish_reason is not None
                    yield from self._add(reader.push(delta.text, delta.token_ids, is_last))
        finally:
            calls = (reader.written(name, arguments) for name, arguments in self.last.calls)
            self.last.written = "\n".join(filter(None, (self.last.text, *calls)))
            self.engine.abort(request_id)  # nothing happens where the answer is complete

    def _add(self, pieces: list[Piece]) -> list[Piece]:
        answer = self.last
        for piece in pieces:
            if piece.kind == "thought":
                answer.reasoning += piece.text
            elif piece.kind == "text":
                answer.text += piece.text
            elif piece.name:
                answer.calls.append((piece.name, piece.text))
            else:
                name, arguments = answer.calls[-1]
                answer.calls[-1] = name, arguments + piece.text
        return pieces

    def _note(self, delta: Delta, elapsed_s: float) -> None:
        if delta.finish_reason == "error":
            raise EngineError(delta.error or "engine: the request failed without a reason")
        answer, timing = self.last, self.last.timing
        answer.token_ids += delta.token_ids
        answer.finish_reason = delta.finish_reason or answer.finish_reason
        timing.cached_tokens = delta.num_cached_tokens or timing.cached_tokens
        timing.output_tokens = len(answer.token_ids)
        timing.total_s = elapsed_s
        if timing.first_token_s is None and delta.token_ids:
            timing.first_token_s = elapsed_s
