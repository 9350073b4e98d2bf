"""The progress bar of `LLM.generate`, on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class TokenProgress:
    """Finished requests out of all, and tokens per second so far."""

    def __init__(self, num_requests: int) -> None:
        self._bar = Progress(
            TextColumn("generating"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=num_requests, rate="")
        self._tokens = 0
        self._start_s = time.monotonic()

    def update(self, num_tokens: int, finished: bool) -> None:
        """Count new tokens, and a finished request."""
        self._tokens += num_tokens
        elapsed_s = max(time.monotonic() - self._start_s, 1e-9)
        rate = f"{self._tokens / elapsed_s:,.1f} tokens/s"
        self._bar.update(self._task, advance=int(finished), rate=rate)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.stop()
