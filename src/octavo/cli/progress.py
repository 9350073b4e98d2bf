"""A progress bar on stderr for downloads; nothing at all where nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Report = Callable[[int, int, str], None]


@contextmanager
def download_progress() -> Iterator[Report]:
    """Yield report(done_bytes, total_bytes, label). The bar appears with the first call."""
    bar = _Bar()
    try:
        yield bar.report
    finally:
        bar.stop()


class _Bar:
    """rich is imported with the first report: most commands find the model in the cache."""

    def __init__(self) -> None:
        self._bar: tuple[Progress, TaskID] | None = None

    def report(self, done: int, total: int, label: str) -> None:
        if self._bar is None:
            progress = _progress()
            progress.start()
            self._bar = progress, progress.add_task(label)
        progress, task = self._bar
        progress.update(task, completed=done, total=total or None, description=label)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True))
