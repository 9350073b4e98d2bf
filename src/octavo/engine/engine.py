"""The engine: requests in, deltas out, one step at a time. Owned and driven by one thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from octavo.backends.base import Executable, Floats
from octavo.cache import KvCache
from octavo.decoding.batch import SampleResult
from octavo.decoding.params import SamplingParams
from octavo.engine.adapters import Adapters, Reader
from octavo.engine.admission import check_request, check_task, queue_has_room
from octavo.engine.deadlines import Deadlines
from octavo.engine.failures import note_error
from octavo.engine.grammars import Grammars
from octavo.engine.intake import Intake
from octavo.engine.logprobs import sampled_logprobs
from octavo.engine.options import EngineOptions
from octavo.engine.planning import EnginePlan, scheduler_config
from octavo.engine.sample import RequestState, Sample
from octavo.engine.sampling_rows import SamplingRows
from octavo.engine.scoring import iter_logits, note_scores
from octavo.engine.stats import EngineLoad, EngineStats
from octavo.engine.step_builder import StepBuilder
from octavo.engine.step_parts import step_parts
from octavo.engine.token_masks import closed_by
from octavo.engine.types import Delta, FinishReason, Request
from octavo.errors import EngineError, InvalidParameterError, QueueFullError
from octavo.models.config import ModelConfig
from octavo.scheduler import Schedule, Scheduler
from octavo.tokenizer.base import Tokenizer
from octavo.weights.cache import Progress

_log = logging.getLogger("octavo.engine")
_SCORE_ONLY = SamplingParams(max_tokens=0, prompt_logprobs=0)


class Engine:
    """Schedules, runs and decodes. `add_request`, `abort`, `step`, `logits`, `stats` and `close`
    belong to the thread that drives it; `check` and `grammars.compile` may be called from any.

    tokenizer None: token ids in and out. read_adapter: how adapters are read, if there can be any;
    those of the options are loaded at once. The executable is the engine's own; `close` closes it.
    """

    def __init__(
        self,
        executable: Executable,
        tokenizer: Tokenizer | None,
        options: EngineOptions,
        plan: EnginePlan,
        read_adapter: Reader | None = None,
    ) -> None:
        self.config: ModelConfig = executable.config
        self.tokenizer = tokenizer
        self.options = options
        self.plan = plan
        self._executable = executable
        executable.allocate_kv(plan.num_blocks)
        self._cache = KvCache(plan.num_blocks, plan.block_size, options.enable_prefix_caching)
        whole_prompts = self.config.encoder is not None
        config = scheduler_config(options, whole_prompts)
        self._scheduler: Scheduler[Sample] = Scheduler(config, self._cache)
        self._max_rows = self._scheduler.max_rows
        max_blocks = -(-plan.max_model_len // plan.block_size)
        most = options.max_num_batched_tokens
        most = max(most, plan.max_model_len) if whole_prompts else most
        self._builder = StepBuilder(most, self._max_rows, max_blocks, plan.block_size)
        vocab_size = self.config.vocab_size
        self._rows = SamplingRows(self._max_rows, vocab_size)
        self._eos_ids = self.config.eos_token_ids + (tokenizer.eos_token_ids if tokenizer else ())
        self.grammars = Grammars.for_engine(options, tokenizer, vocab_size, self._eos_ids)
        self.adapters = Adapters(executable, read_adapter, options.lora)
        sizes = (plan.max_model_len, self._eos_ids)
        differ = executable.prompts_differ
        self._intake = Intake(options, tokenizer, self._cache, *sizes, self.adapters, differ)
        self._requests: dict[str, RequestState] = {}
        self._deadlines = Deadlines()
        self._pending: list[Delta] = []  # deltas that no step produced
        self._preempted: set[Sample] = set()  # those that wait for recomputation
        self._stats = EngineStats(num_blocks=plan.num_blocks, block_size=plan.block_size)
        self._closed = False
        self.before_step: Callable[[Schedule[Sample]], None] | None = None  # for a supervisor

    @classmethod
    def from_options(
        cls,
        options: EngineOptions,
        progress: Progress | None = None,
        report: Callable[[EnginePlan], None] | None = None,
        grammars: bool = True,
        chats: bool = True,
    ) -> Engine:
        """Find, open, plan and compile a model.

        progress: called with (done_bytes, total_bytes, label) while the model is fetched.
        report: called with the memory plan before any weight is packed.
        grammars: whether requests may have some; else the plan leaves them no memory.
        chats: whether to get the chat template ready, for the first chat not to wait for it.
        Raises ModelError, BackendError or MemoryPlanError saying what is wrong.
        """
        from octavo.engine.loading import engine_class, load

        loaded = load(options, progress, report, grammars, chats)
        return engine_class(cls, loaded[2])(*loaded)

    def check(self, request: Request) -> None:
        """Raise a RequestError if this engine can never serve the request."""
        check_task(request, self.options.task)
        self.adapters.check(request.lora)
        sizes = (self.config.vocab_size, self.plan.max_model_len, self._max_rows)
        check_request(request, *sizes, self.tokenizer is not None)

    def add_request(self, request: Request, *, admitted: bool = False) -> None:
        """Queue a request. Raises RequestError subclasses at once; then nothing has happened.
        admitted: the caller keeps the queue's bounds."""
        self._check_open()
        self.check(request)
        if request.request_id in self._requests:
            raise InvalidParameterError("request_id", f"'{request.request_id}' is in use")
        if not (admitted or self.has_room(request)):
            raise QueueFullError(
                f"engine: {self.num_waiting} requests are waiting already; retry later"
            )
        state = self._new_state(request)
        self.adapters.acquire(request.lora)
        self._requests[request.request_id] = state
        self._deadlines.add(state)
        self._stats.prompt_tokens += len(request.prompt_ids)
        leader = state.samples[0]
        if request.params.max_tokens == 0 and leader.num_to_score == 0:
            self._pending.append(self._finish(leader, "length"))
        elif not self.grammars.hold(state):
            self._queue(state)

    def has_room(self, request: Request) -> bool:
        """Whether the queue's bounds allow one more."""
        num_tokens = self._scheduler.waiting.num_tokens + len(request.prompt_ids)
        return queue_has_room(self.options, self.num_waiting, num_tokens)

    def _new_state(self, request: Request) -> RequestState:
        return self._intake.new_state(request)

    def abort(self, request_id: str) -> None:
        """End a request now; its blocks are free before the next step. Unknown ids are ignored:
        the request may just have finished. The next `step` returns its last deltas."""
        if (state := self._requests.get(request_id)) is not None:
            self._pending += self._end(state, "abort")

    def end_sample(self, request_id: str, index: int) -> None:
        """End one sample of a request that has begun to answer, with finish reason "stop", as if
        it were complete. Unknown and finished ones are ignored."""
        state = self._requests.get(request_id)
        if state is None or not state.told or not 0 <= index < len(state.samples):
            return
        if not state.samples[index].done:
            self._pending.append(self._finish(state.samples[index], "stop"))

    def abort_all(self) -> None:
        """Abort every request."""
        for request_id in list(self._requests):
            self.abort(request_id)

    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self._pending) or bool(self.grammars) or self._scheduler.has_work()

    @property
    def num_waiting(self) -> int:
        """Requests (or preempted samples) that wait for their grammar, or for rows and blocks."""
        return len(self._scheduler.waiting) + len(self.grammars)

    def load(self) -> EngineLoad:
        """How much there is to do; cheap enough for every step."""
        scheduler = self._scheduler
        waiting = scheduler.waiting
        return EngineLoad(self.num_waiting, waiting.num_tokens, scheduler.num_rows_taken)

    def step(self) -> list[Delta]:
        """Run one step and return what it added. If the backend fails, the requests in the step
        end with finish_reason "error" and the engine goes on."""
        self._check_open()
        if self._deadlines:
            for state, error in self._deadlines.expired():
                self._pending += self._refuse(state, error)
        if self.grammars:
            self._take_released()
        deltas, self._pending = self._pending, []
        plan = self._scheduler.schedule()
        for sample in plan.preempted:
            self._preempted.add(sample)
            sample.state.metrics.num_preemptions += 1
        if not plan:
            if not (deltas or plan.preempted):
                self._check_stuck()
            return deltas
        started = time.perf_counter()
        self._admit(plan)
        if self.before_step is not None:
            self.before_step(plan)
        try:
            drawn = self._run(plan)
        except Exception as error:
            return deltas + self._fail(plan, error)
        self._scheduler.commit(plan)
        for drawing, result in drawn:
            self._advance(drawing, result, deltas)
        self._finish_scored(plan, deltas)
        self._stats.note_step(time.perf_counter() - started, plan.num_tokens)
        return deltas

    def logits(self, token_ids: list[int]) -> Floats:
        """Logits after each of the ids, float32 [len(token_ids), vocab]; see `iter_logits`."""
        return np.concatenate([part.copy() for part in self.iter_logits(token_ids)])

    def iter_logits(self, token_ids: list[int], first: int = 0) -> Iterator[Floats]:
        """Logits after token_ids[first:], in pieces; see `scoring.iter_logits`."""
        self._check_open()
        ids = list(token_ids)
        self.check(Request("logits", ids, _SCORE_ONLY))
        cache, builder = self._cache, self._builder
        yield from iter_logits(self._executable, cache, builder, ids, first, self._max_rows)

    def clear_prefix_cache(self) -> None:
        """Forget all cached prefixes."""
        self._cache.clear()

    def stats(self) -> EngineStats:
        """A snapshot of the counters."""
        pool, scheduler = self._cache.pool, self._scheduler
        return self._stats.snapshot(
            num_running=sum(s.width for s in scheduler.running),
            num_waiting=self.num_waiting,
            num_waiting_preempted=len(self._preempted),
            num_used_blocks=pool.num_blocks - pool.num_free,
            num_free_blocks=pool.num_free,
            num_cached_blocks=pool.num_cached,
            prefix_cache_queries=scheduler.num_prompt_queries,
            prefix_cache_hits=scheduler.num_prompt_hits,
            num_preemptions=scheduler.num_preemptions,
        )

    def close(self) -> None:
        """Drop all requests and free the model. Idempotent."""
        if not self._closed:
            self._closed = True
            self._requests.clear()
            self.grammars.close()
            self._executable.close()

    def _check_stuck(self) -> None:
        """Nothing could be scheduled: say so where waiting cannot help."""
        if self._scheduler.waiting and not self._scheduler.running:
            pool = self._cache.pool
            num_held = pool.num_blocks - pool.num_free
            raise EngineError(
                f"engine: {self.num_waiting} requests wait, but {num_held} of {pool.num_blocks} KV "
                "blocks are held by `iter_logits`; let it end before stepping"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("engine: closed; make a new one")

    def _queue(self, state: RequestState) -> None:
        if state.request.resumption is None:
            self._scheduler.add(state.samples[0])  # the others follow it
            return
        for sample in state.samples:
            if not sample.done:
                self._scheduler.add(sample)

    def _take_released(self) -> None:
        """Queue the requests whose grammar is ready now."""
        idle = not (self._pending or self._scheduler.has_work())
        for state, error in self.grammars.release(idle):
            if error is None:
                self._queue(state)
            else:
                self._pending += self._refuse(state, error)

    def _refuse(self, state: RequestState, error: BaseException) -> list[Delta]:
        """End a request by an error of its own."""
        deltas = list(self._end(state, "error"))
        for delta in deltas:
            note_error(delta, error)
        return deltas

    def _admit(self, plan: Schedule[Sample]) -> None:
        for sample in plan.admitted:
            self._preempted.discard(sample)
            self._builder.forget(sample.row)
            self._rows.admit(sample)
            state = sample.state
            if state.num_cached is None:
                state.num_cached = sample.num_computed
                state.metrics.first_scheduled_s = time.monotonic()

    def _run(self, plan: Schedule[Sample]) -> list[tuple[list[Sample], SampleResult]]:
        """The backend's part: block copies, what is sampled from, then scoring chunks one by one.
        Returns who drew what."""
        if self._cache.copies:
            self._executable.copy_blocks(np.array(self._cache.copies, dtype=np.int32))
            self._cache.copies.clear()
        drawn = []
        for part in step_parts(plan, self._executable.prompts_differ):
            step = self._builder.build(part.decodes, part.chunks, part.of_prompts)
            drawing = part.drawing()
            drawn.append((drawing, self._executable.step(step, self._rows.batch(drawing))))
        for chunk in plan.chunks:
            if chunk.score:
                step = self._builder.build([], [chunk], of_prompts=True)
                note_scores(chunk, self._executable.forward(step), self.tokenizer)
        return drawn

    def _advance(self, drawing: list[Sample], result: SampleResult, deltas: list[Delta]) -> None:
        """Append each row's token, check stops, and say what is new."""
        for row, token in enumerate(result.ids.tolist()):
            sample = drawing[row]
            if token < 0:
                deltas += self._fail_drawing(sample, result.error(row))
            elif not sample.done:  # else its request has just failed with a sibling
                deltas.append(self._append(sample, token, row, result))
                self._stats.generation_tokens += 1

    def _fail_drawing(self, sample: Sample, why: str | None) -> Iterable[Delta]:
        error = closed_by(sample, why)
        if error is None:
            return self._end(sample.state, "error", why)
        return self._refuse(sample.state, error)

    def _append(self, sample: Sample, token: int, row: int, result: SampleResult) -> Delta:
        sample.take(token)
        if sample.matcher is not None:
            sample.matcher.advance((token,))
        reason, stop = sample.end_by(token)
        text, matched = sample.read(token, ended=reason is not None)
        if matched is not None:
            reason = "stop"
        delta = Delta(sample.request_id, sample.index, text, [token])
        if sample.params.logprobs is not None:
            delta.logprobs = [sampled_logprobs(result, row, sample.params, self.tokenizer)]
        sample.state.introduce(delta)
        if reason is not None:
            delta.finish_reason = reason
            delta.stop_reason = stop if matched is None else matched
            self._retire(sample, reason, delta)
        return delta

    def _finish_scored(self, plan: Schedule[Sample], deltas: list[Delta]) -> None:
        """Requests without output end once their prompt is scored."""
        for chunk in plan.chunks:
            sample = chunk.sequence
            scored = chunk.score and sample.num_scored >= sample.num_to_score
            if scored and sample.params.max_tokens == 0:
                deltas += self._end(sample.state, "length")

    def _fail(self, plan: Schedule[Sample], error: Exception) -> list[Delta]:
        _log.error("step failed: %s", error, exc_info=error)
        self._stats.num_step_errors += 1
        members = [*plan.decodes, *(chunk.sequence for chunk in plan.chunks)]
        states = dict.fromkeys(sample.state for sample in members)
        return [d for state in states for d in self._end(state, "error", str(error))]

    def _end(
        self, state: RequestState, reason: FinishReason, error: str | None = None
    ) -> Iterable[Delta]:
        """Finish all samples of a request that still live."""
        live = [sample for sample in state.samples if not sample.done]
        return [self._finish(sample, reason, error) for sample in live]

    def _finish(self, sample: Sample, reason: FinishReason, error: str | None = None) -> Delta:
        """Finish a sample without a new token."""
        delta = Delta(sample.request_id, sample.index, "", [])
        delta.finish_reason, delta.error = reason, error
        sample.state.introduce(delta)
        self._retire(sample, reason, delta)
        return delta

    def _retire(self, sample: Sample, reason: FinishReason, delta: Delta) -> None:
        self._scheduler.finish(sample)
        self._preempted.discard(sample)
        sample.done, sample.matcher = True, None
        self._stats.finished[reason] += 1
        state = sample.state
        state.num_live -= 1
        if state.num_live == 0:
            state.metrics.finished_s = time.monotonic()
            delta.metrics = state.metrics
            self.grammars.drop(state)
            self.adapters.release(state.request.lora)
            del self._requests[sample.request_id]
