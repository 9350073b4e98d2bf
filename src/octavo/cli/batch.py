"""`octavo batch`: a file of requests, answered by an engine in this process."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.errors import usage_error
from octavo.cli.options import (
    Adapters,
    Backend,
    EngineChoices,
    KvDtype,
    KvMemory,
    MaxModelLen,
    Products,
    Threads,
    Weights,
    named_adapters,
)

if TYPE_CHECKING:
    from octavo.batch import BadLine, Item, Journal, Tally
    from octavo.engine import EngineOptions


def batch(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", exists=True, dir_okay=False, help="Requests, one JSON object a line."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="OUTPUT", dir_okay=False, help="Where records go; grows by lines."),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Answer every request with this model.",
            show_default="what the first request names",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, help="Requests that run at once.")
    ] = 16,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
    max_model_len: MaxModelLen = None,
    kv_cache_memory: KvMemory = None,
    lora: Adapters = None,
) -> None:
    """Answer a file of requests in OpenAI's batch format, without a server.

    A line of INPUT is {"custom_id": ..., "url": "/v1/chat/completions", "body": {...}}; a line of
    OUTPUT is the record of one. A malformed line gets a record that says why. After Ctrl-C, a kill
    or a full disk the same command goes on where it stopped. The first request decides whether
    the model generates, embeds or scores.

    [bold]Examples[/bold]

    octavo batch requests.jsonl answers.jsonl --model smollm2

    octavo batch requests.jsonl answers.jsonl -c 32 --json
    """
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "pydantic", "zmq")):
        usage_error("what batches need is not installed: pip install 'octavo[serve]'")
    if target.exists() and target.samefile(source):
        usage_error("OUTPUT is INPUT; choose another file")
    from octavo.batch import Journal, Tally, count_lines

    started = time.perf_counter()
    adapters = named_adapters(lora or [], (model,) if model else ())
    chosen = model or _first_model(source, adapters)
    choices = EngineChoices(
        threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory, products=products
    )
    engine = choices.options(chosen, max_num_seqs=concurrency, task=_task(source), lora=adapters)
    tally = Tally()
    with source.open("rb") as file:
        total = count_lines(file)
    with Journal(target, tally.add) as journal:
        before = tally.completed + tally.failed
        with _progress(total, before, quiet) as advance:
            _run(source, journal, tally, engine, concurrency, model, advance)
    summary = _summary(total, before, tally, time.perf_counter() - started)
    print(json.dumps(summary)) if as_json else print(_sentence(summary, target), file=sys.stderr)


def _run(
    source: Path,
    journal: Journal,
    tally: Tally,
    options: EngineOptions,
    concurrency: int,
    model: str | None,
    advance: Callable[[], None],
) -> None:
    if not any(not tally.settles(item) for item in _items(source, model, options.lora)):
        return  # nothing is left to do, so no model is loaded
    from octavo.cli.progress import download_progress
    from octavo.engine import AsyncEngine
    from octavo.records import replace
    from octavo.serving.offline import run_offline
    from octavo.weights import resolve

    with download_progress() as progress:
        path = str(resolve(options.model, progress))
        task = _task_for_pairs(path) if options.task == "auto" else options.task
        engine = AsyncEngine.from_options(replace(options, model=path, task=task), progress)
    with engine:
        asyncio.run(
            run_offline(
                engine,
                path,
                _items(source, model, options.lora),
                journal,
                tally,
                model=options.model,
                concurrency=concurrency,
                on_record=advance,
            )
        )


def _items(
    source: Path, model: str | None, adapters: Mapping[str, str]
) -> Iterator[Item | BadLine]:
    """The file's requests, each for `model`, unless it names an adapter."""
    from octavo.batch import read_items
    from octavo.serving.offline import with_model

    with source.open("rb") as file:
        for item in read_items(file):
            yield item if model is None else with_model(item, model, adapters)


def _first_model(source: Path, adapters: Mapping[str, str]) -> str:
    """The model that the first request names that does not name an adapter."""
    from octavo.batch import Item, read_items

    with source.open("rb") as file:
        for item in read_items(file):
            name = item.body.get("model") if isinstance(item, Item) else None
            if isinstance(name, str) and name not in adapters:
                return name
    usage_error("no request names a model; say which with --model")


def _task(source: Path) -> str:
    """What the first request is about; an engine has one task. "auto" for scores, which come from
    models of two kinds."""
    from octavo.batch import PAIR_ENDPOINTS, Item, read_items

    with source.open("rb") as file:
        first = next((item for item in read_items(file) if isinstance(item, Item)), None)
    if first is None or first.url not in ("/v1/embeddings", *PAIR_ENDPOINTS):
        return "generate"
    return "embed" if first.url == "/v1/embeddings" else "auto"


def _task_for_pairs(model: str) -> str:
    """Encoders score or embed as they are made; a decoder embeds, and the cosine is the score."""
    from octavo.models import config_from
    from octavo.weights import open_checkpoint

    return "embed" if config_from(open_checkpoint(model)).encoder is None else "auto"


@contextmanager
def _progress(total: int, done: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar on stderr with the time left, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = ("requests", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("requests", total=total, completed=done)
        yield lambda: bar.advance(task)


def _summary(total: int, before: int, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "total": total,
        "completed": tally.completed,
        "failed": tally.failed,
        "resumed": before,
        "input_tokens": tally.input_tokens,
        "cached_tokens": tally.cached_tokens,
        "output_tokens": tally.output_tokens,
        "seconds": round(seconds, 3),
    }


def _sentence(summary: dict[str, Any], target: Path) -> str:
    resumed = f", {summary['resumed']} of them before" if summary["resumed"] else ""
    return (
        f"{summary['completed']} of {summary['total']} requests answered, "
        f"{summary['failed']} failed{resumed}; {summary['output_tokens']:,} tokens in "
        f"{summary['seconds']:.1f} s -> {target}"
    )
