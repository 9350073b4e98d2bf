"""CpuExecutable: the native executor behind the backend contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from octavo._native import Executor
from octavo._native import SamplingBatch as NativeBatch
from octavo.backends.base import BackendOptions, Executable, Floats, Ints, MemoryPlan, Step
from octavo.backends.cpu import adapters
from octavo.decoding.batch import SampleResult, SamplingBatch
from octavo.errors import BackendError
from octavo.models.config import ModelConfig
from octavo.weights.adapter import Adapter


class CpuExecutable(Executable):
    """Runs steps natively with the GIL released. Logits arrays are reused from call to call."""

    def __init__(
        self,
        executor: Executor,
        config: ModelConfig,
        options: BackendOptions,
        plan: MemoryPlan,
        width: int,
        streamed_bytes: int,
        targets: Mapping[str, adapters.Target],
        products: str,
    ) -> None:
        """streamed_bytes: weights that every step reads from start to end. targets: weights that
        adapters may change, by name. products: "int8", "bf16" or "mixed"."""
        self.config = config
        self.products = products
        self.prompts_differ = products == "mixed"
        self.block_size = options.block_size
        self.plan = plan
        self.num_threads = executor.num_threads
        self.streamed_bytes = streamed_bytes
        self._executor: Executor | None = executor
        self._targets = targets
        self._width = width
        self._logits = np.empty((0, width), np.float32)

    def allocate_kv(self, num_blocks: int) -> None:
        self._native().allocate_kv(num_blocks)

    def forward(self, step: Step) -> Floats:
        num_rows = len(step.logit_rows)
        if num_rows > len(self._logits):
            self._logits = np.empty((num_rows, self._width), np.float32)
        logits = self._logits[:num_rows]
        try:
            self._native().forward(*_arrays(step), logits)
        except ValueError as error:
            raise BackendError(str(error)) from None
        return logits

    def step(self, step: Step, sampling: SamplingBatch) -> SampleResult:
        try:
            return SampleResult(*self._native().step(*_arrays(step), NativeBatch(sampling)))
        except ValueError as error:
            raise BackendError(str(error)) from None

    def copy_blocks(self, pairs: Ints) -> None:
        try:
            self._native().copy_blocks(pairs)
        except ValueError as error:
            raise BackendError(str(error)) from None

    def load_adapter(self, number: int, adapter: Adapter) -> None:
        adapters.load(self._native(), number, adapter, self._targets)

    def unload_adapter(self, number: int) -> None:
        self._native().unload_adapter(number)

    @contextmanager
    def profile(self) -> Iterator[list[tuple[str, float]]]:
        """Time the regions of all steps run in the block. When it ends the list holds, in program
        order, each region's kind and its seconds summed over the steps, barrier included."""
        executor = self._native()
        regions: list[tuple[str, float]] = []
        executor.set_profiling(True)
        try:
            yield regions
        finally:
            regions += executor.profile()
            executor.set_profiling(False)

    def close(self) -> None:
        self._executor = None
        self._logits = np.empty((0, self._width), np.float32)

    def _native(self) -> Executor:
        if self._executor is None:
            raise BackendError("cpu: the executable is closed")
        return self._executor


_NONE = np.empty(0, np.int32)


def _arrays(step: Step) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, bool]:
    return (
        step.tokens,
        step.positions,
        step.slots,
        step.query_start,
        step.seq_len,
        step.block_table,
        step.logit_rows,
        _NONE if step.types is None else step.types,
        _NONE if step.adapters is None else step.adapters,
        step.of_prompts,
    )
