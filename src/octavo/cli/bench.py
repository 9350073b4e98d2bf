"""`octavo bench engine`: how fast the engine is in this process."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.bench_serve import bench_serve
from octavo.cli.options import (
    Backend,
    EngineChoices,
    KvDtype,
    KvMemory,
    MaxModelLen,
    ModelArg,
    Products,
    Threads,
    Weights,
    writable,
)

if TYPE_CHECKING:
    from octavo.bench import EngineResult, Summary
    from octavo.engine import Engine

app = typer.Typer(no_args_is_help=True, help="Measure speed.", add_completion=False)


@app.callback()
def bench() -> None:
    """Measure speed."""


@app.command()
def engine(
    model: ModelArg,
    input_len: Annotated[int, typer.Option(min=1, help="Prompt tokens of a request.")] = 512,
    output_len: Annotated[int, typer.Option(min=1, help="Output tokens of a request.")] = 128,
    concurrency: Annotated[
        str, typer.Option(metavar="N,N,...", help="How many requests at once.")
    ] = "1,8,32",
    repeat: Annotated[int, typer.Option(min=1, help="Measured runs; the median counts.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the random prompts.")] = 0,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            callback=writable,
            help="Also write results.",
            show_default=False,
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int, typer.Option(min=1, rich_help_panel="Engine", help="Token budget of one step.")
    ] = 512,
    max_num_mixed_tokens: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel="Engine", help="Of them prompt tokens while others decode."
        ),
    ] = 192,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
    max_model_len: MaxModelLen = None,
    kv_cache_memory: KvMemory = None,
) -> None:
    """Prefill and decode speed, time to first token, time between tokens.

    Random prompts, greedy, without prefix cache; one warm-up run, then the median of --repeat runs.
    TTFT is the time to the first token, p50 to p99 are times between tokens.

    [bold]Example[/bold]

    octavo bench engine smollm2 --input-len 128 --output-len 64 --concurrency 1,8,32
    """
    from octavo.bench import Workload, bench_engine

    streams = _parse_concurrency(concurrency)
    choices = EngineChoices(
        threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory, products=products
    )
    budgets = (max_num_batched_tokens, max_num_mixed_tokens)
    opened = _open(model, choices, max(streams), *budgets)
    results = []
    try:
        for n in streams:
            workload = Workload(input_len, output_len, n, seed)
            results.append(bench_engine(opened, workload, repetitions=repeat))
            print(f"{n} streams: done", file=sys.stderr)
    finally:
        opened.close()
    _print_table(results)
    if json_file:
        json_file.write_text(json.dumps(_report(opened, results), indent=2) + "\n")


def _parse_concurrency(text: str) -> list[int]:
    try:
        streams = [int(part) for part in text.split(",")]
    except ValueError:
        streams = []
    if not streams or min(streams) < 1:
        raise typer.BadParameter(
            f"{text!r}: expected numbers such as 1,8,32", param_hint="--concurrency"
        )
    return streams


def _open(model: str, choices: EngineChoices, streams: int, budget: int, mixed: int) -> Engine:
    from octavo.cli.progress import download_progress
    from octavo.engine import Engine

    options = choices.options(
        model,
        max_num_seqs=max(64, streams),
        max_num_batched_tokens=budget,
        max_num_mixed_tokens=mixed,
        enable_prefix_caching=False,
    )
    with download_progress() as progress:
        return Engine.from_options(options, progress, grammars=False)


def _report(engine: Engine, results: list[EngineResult]) -> dict[str, object]:
    from octavo import __version__
    from octavo.bench import describe_machine

    return {
        "octavo": __version__,
        "machine": asdict(describe_machine()),
        "options": asdict(engine.options),
        "model": engine.config.name,
        "results": [result.as_dict() for result in results],
    }


def _print_table(results: list[EngineResult]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="medians of the runs: tokens/s (± half of their spread) and milliseconds")
    rates = ("prefill", "decode", "output", "total")
    times = ("TTFT", "p50", "p90", "p99")
    for name in ("streams", *rates, *times):
        table.add_column(name, justify="right")
    for r in results:
        table.add_row(
            str(r.workload.concurrency),
            *(_rate(s) for s in (r.prefill_tps, r.decode_tps, r.output_tps, r.total_tps)),
            _ms(r.ttft_p50_s),
            *(_ms(s) for s in (r.inter_token_p50_s, r.inter_token_p90_s, r.inter_token_p99_s)),
        )
    Console().print(table)


def _rate(summary: Summary | None) -> str:
    return f"{summary.median:.1f} ±{summary.spread / 2:.0%}" if summary else "-"


def _ms(summary: Summary | None) -> str:
    return f"{summary.median * 1e3:.1f}" if summary else "-"


app.command("serve")(bench_serve)
