"""Compiles the grammars of requests beside the steps, so that nobody else waits for them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

from octavo.decoding.grammar import Grammar
from octavo.decoding.grammar_compiler import CompiledGrammar, GrammarCompiler
from octavo.decoding.grammar_limits import GrammarLimits
from octavo.engine.options import EngineOptions
from octavo.engine.sample import RequestState
from octavo.tokenizer.base import Tokenizer

POLL_S = 0.005  # how long an engine without other work waits for a grammar before it looks up


class Grammars:
    """Holds requests back until their grammar is compiled. Belongs to the engine's thread, but
    for `compile` and `prepare`, which any may call. Its length is the number of those held."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._pool: ThreadPoolExecutor | None = None
        self._held: list[tuple[RequestState, Future[CompiledGrammar]]] = []

    @classmethod
    def for_engine(
        cls,
        options: EngineOptions,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        eos_ids: tuple[int, ...],
    ) -> Grammars:
        """For one engine; nothing is built yet."""
        return cls(GrammarCompiler(tokenizer, vocab_size, eos_ids, grammar_limits(options)))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def request_ids(self) -> list[str]:
        """Of the requests that are held."""
        return [state.request.request_id for state, _ in self._held]

    def prepare(self) -> None:
        """Build what all grammars share, so that the first request does not pay for it."""
        self._compiler.prepare()

    def compile(self, grammar: Grammar | None) -> None:
        """Compile now, in the calling thread, so that a bad grammar is known at once. Raises
        InvalidParameterError. Without this, such a request ends with that error."""
        if grammar is not None:
            self._compiler.compile(grammar)

    def hold(self, state: RequestState) -> bool:
        """Whether a new request has to wait; then `release` gives it back. A request without a
        grammar, or with one that is known, need not."""
        grammar = state.request.params.grammar
        if grammar is None:
            return False
        compiled = self._compiler.find(grammar)
        if compiled is not None:
            _constrain(state, compiled)
            return False
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="octavo-grammars")
        self._held.append((state, self._pool.submit(self._compiler.compile, grammar)))
        return True

    def release(self, idle: bool) -> list[tuple[RequestState, BaseException | None]]:
        """Requests that can go on, or have failed with an error, in order of arrival. idle: there
        is nothing else to do; wait a moment for the first."""
        if idle and self._held:
            wait([future for _, future in self._held], POLL_S, return_when="FIRST_COMPLETED")
        done = [entry for entry in self._held if entry[1].done()]
        if done:
            self._held = [entry for entry in self._held if entry not in done]
        return [(state, _finish(state, future)) for state, future in done]

    def drop(self, state: RequestState) -> None:
        """Forget a request."""
        for held, future in self._held:
            if held is state:
                future.cancel()
        self._held = [entry for entry in self._held if entry[0] is not state]

    def close(self) -> None:
        """Forget all requests; the thread ends when it is done with what it compiles."""
        self._held.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def grammar_limits(options: EngineOptions) -> GrammarLimits:
    """What the engine's options say of grammars."""
    return GrammarLimits(options.max_grammar_bytes, options.max_grammar_depth)


def _finish(state: RequestState, future: Future[CompiledGrammar]) -> BaseException | None:
    error = future.exception()
    if error is None:
        _constrain(state, future.result())
    return error


def _constrain(state: RequestState, grammar: CompiledGrammar) -> None:
    for sample in state.samples:
        if not sample.done:  # a resumed request may have finished samples
            sample.constrain(grammar)
