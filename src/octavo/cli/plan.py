"""`octavo plan`: what a load will need and how fast it will be, without loading the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import (
    Backend,
    EngineChoices,
    KvDtype,
    ModelArg,
    Products,
    Threads,
    Weights,
    parse_size,
)
from octavo.cli.text import size

if TYPE_CHECKING:
    from octavo.forecast import Forecast


def plan(
    model: ModelArg,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, help="Requests at once.")
    ] = 1,
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            "-l",
            metavar="TOKENS",
            help="Tokens of a request, prompt and answer.",
            show_default="4096, or the model's if less",
        ),
    ] = None,
    output: Annotated[
        int | None,
        typer.Option(
            "--output", metavar="TOKENS", help="Those of the answer.", show_default="256 or half"
        ),
    ] = None,
    available: Annotated[
        int | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            parser=parse_size,
            help="Plan for this much memory, such as 4G.",
            show_default="what is free here",
        ),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Rehearse some steps here (seconds).")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
) -> None:
    """What a model will need and how fast it will be here. Its weights are not loaded.

    Memory is that of one process with the engine. Speed is rehearsed: the model's own program runs
    on this machine, on stand-ins for the weights. Ends with code 1 if the load does not fit, after
    saying what to change.

    [bold]Examples[/bold]

    octavo plan smollm2

    octavo plan ./model.gguf --concurrency 16 --context 8192 --kv-dtype int8

    octavo plan ./model.gguf --memory 4G --no-speed
    """
    from octavo.cli.progress import download_progress
    from octavo.forecast import forecast

    options = EngineChoices(threads, backend, weights, kv_dtype, products=products).options(model)
    with download_progress() as progress:
        found = forecast(options, concurrency, context, output, available, speed, progress)
    print(json.dumps(found.as_dict(), ensure_ascii=False, indent=2)) if as_json else _print(found)
    if not found.memory.fits:
        raise typer.Exit(1)


def _print(found: Forecast) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for label, value, note in [*_memory_rows(found), *_speed_rows(found)]:
        table.add_row(f"[bold]{label}[/bold]", escape(value), f"[dim]{escape(note)}[/dim]")
    load = found.load
    console = Console()
    console.print(
        f"{escape(found.model)} on {found.backend}, {found.threads} threads: "
        f"{load.concurrency} x {load.context:,} tokens ({load.prompt:,} in, {load.output:,} out)\n",
        highlight=False,
    )
    console.print(table)
    if found.advice:
        console.print("\n[bold]What to change[/bold] (one of these)")
        for line in found.advice:
            console.print(f"  {escape(line)}", highlight=False)


def _memory_rows(found: Forecast) -> list[tuple[str, str, str]]:
    need, load = found.memory, found.load
    fits = "fits" if need.fits else "does not fit"
    return [
        ("weights", size(need.weights), ""),
        ("KV cache", size(need.kv), f"{size(need.kv_per_token)} a token"),
        ("arena", size(need.arena), "values between operators"),
        ("program", size(need.program), "Python, libraries, tokenizer, grammars"),
        ("total", size(need.total), f"of {size(need.available)} available: {fits}"),
        ("room for", f"{found.sequences:,}", f"requests of {load.context:,} tokens"),
    ]


def _speed_rows(found: Forecast) -> list[tuple[str, str, str]]:
    speed = found.speed
    if speed is None:
        return []
    first = "first token" if found.load.output else "the vector"
    note = f"tokens/s; {first} of {found.load.prompt:,} after {speed.ttft_s:.2f} s"
    rows = [("", "", ""), ("prompt", _rate(speed.prefill_tps), note)]
    if speed.decode_tps is not None:
        rows.append(("one answer", _rate(speed.decode_tps), "tokens/s"))
    if speed.total_tps is not None and found.load.concurrency > 1:
        count, each = found.load.concurrency, speed.total_tps / found.load.concurrency
        rows.append((f"{count} answers", _rate(speed.total_tps), f"tokens/s; {_rate(each)} each"))
    return rows


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}"
