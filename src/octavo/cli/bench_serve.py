"""`octavo bench serve`: load on any server that speaks OpenAI's protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from octavo.cli.errors import usage_error
from octavo.cli.options import writable

if TYPE_CHECKING:
    from octavo.bench.load import LoadResult, RequestRecord, Target
    from octavo.bench.load.runner import Load

_LOAD, _PROMPTS, _RESULT = "Load", "Prompts", "Result"


def bench_serve(
    url: Annotated[str, typer.Option(help="The server, as http://127.0.0.1:8000.")],
    model: Annotated[str, typer.Option(help="Empty: the first the server lists.")] = "",
    endpoint: Annotated[Literal["chat", "completions"], typer.Option(help="The route.")] = "chat",
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as bearer.", show_envvar=True)
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, rich_help_panel=_LOAD, help="Clients of a closed loop.")
    ] = 16,
    rate: Annotated[
        float | None,
        typer.Option(rich_help_panel=_LOAD, help="Open loop: requests a second, on average."),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(rich_help_panel=_LOAD, help="1: Poisson; smaller: in bursts; larger: even."),
    ] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_LOAD, help="JSONL with timestamp, prompt or input_length."),
    ] = None,
    speedup: Annotated[
        float, typer.Option(rich_help_panel=_LOAD, help="Play the trace so many times faster.")
    ] = 1.0,
    requests: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_LOAD, help="Stop after these.  [default: 100]"),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(rich_help_panel=_LOAD, help="Stop sending after seconds.")
    ] = None,
    warmup: Annotated[
        int, typer.Option(min=0, rich_help_panel=_LOAD, help="Requests before the clock starts.")
    ] = 2,
    input_len: Annotated[
        str,
        typer.Option(rich_help_panel=_PROMPTS, help="Words: 128, 64-256, 128:0.9,2048:0.1."),
    ] = "128",
    output_len: Annotated[
        str, typer.Option(rich_help_panel=_PROMPTS, help="Tokens of an answer, likewise.")
    ] = "64",
    tokenizer: Annotated[
        str | None,
        typer.Option(rich_help_panel=_PROMPTS, help="A model; then --input-len is in its tokens."),
    ] = None,
    shared_prefix_len: Annotated[
        int, typer.Option(min=0, rich_help_panel=_PROMPTS, help="Of --input-len, shared by many.")
    ] = 0,
    num_prefixes: Annotated[
        int, typer.Option(min=1, rich_help_panel=_PROMPTS, help="Different shared beginnings.")
    ] = 1,
    ignore_eos: Annotated[
        bool, typer.Option(rich_help_panel=_PROMPTS, help="Ask for answers of full length.")
    ] = True,
    extra_body: Annotated[
        str, typer.Option(rich_help_panel=_PROMPTS, help="JSON object added to every body.")
    ] = "{}",
    seed: Annotated[int, typer.Option(rich_help_panel=_PROMPTS, help="Of prompts, arrivals.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds for one answer.")] = 600.0,
    slo: Annotated[
        str | None,
        typer.Option(rich_help_panel=_RESULT, help="For goodput: ttft=0.5,tpot=0.05,e2e=10."),
    ] = None,
    cost_per_hour: Annotated[
        float | None, typer.Option(rich_help_panel=_RESULT, help="Of the machine: gives a price.")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", callback=writable, rich_help_panel=_RESULT, help="Everything."
        ),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", callback=writable, rich_help_panel=_RESULT, help="With plots."
        ),
    ] = None,
) -> None:
    """Load on any OpenAI-compatible server: latency, throughput, goodput.

    A closed loop of --concurrency clients, an open loop of --rate requests a second, or a --trace.
    Every answer is streamed. All times are the client's.

    [bold]Examples[/bold]

    octavo bench serve --url http://127.0.0.1:8000 --concurrency 16 --requests 200

    octavo bench serve --url http://host:8000 --rate 4 --duration 60 --slo ttft=0.5,tpot=0.05

    octavo bench serve --url http://host:8000 --input-len 1024 --shared-prefix-len 896
    """
    from octavo.bench.load import Lengths, PromptMix, Slo, Target, bench_server

    target = Target(
        url=url if "://" in url else f"http://{url}",
        model=model,
        endpoint=endpoint,
        api_key=api_key,
        extra=_object(extra_body),
        ignore_eos=ignore_eos,
        timeout_s=timeout,
    )
    load = _load(concurrency, rate, burstiness, trace, speedup, seed)
    mix = PromptMix(
        Lengths.parse(input_len, "--input-len"),
        Lengths.parse(output_len, "--output-len"),
        shared_prefix_len,
        num_prefixes,
        seed,
        _counter(tokenizer),
    )
    wanted = requests or (None if duration or trace else 100)
    with _progress(wanted) as on_record:
        result = bench_server(
            target,
            load,
            mix,
            num_requests=wanted,
            duration_s=duration,
            warmup=warmup,
            slo=Slo.parse(slo) if slo else None,
            cost_per_hour=cost_per_hour,
            on_record=on_record,
        )
    _show(result, target, json_file, html_file)
    if not result.num_good:
        raise typer.Exit(1)


def _load(
    concurrency: int,
    rate: float | None,
    burstiness: float,
    trace: Path | None,
    speedup: float,
    seed: int,
) -> Load:
    from octavo.bench.load import ClosedLoop, OpenLoop, read_trace

    if rate is not None and trace is not None:
        usage_error("--rate and --trace both say when requests are sent; give one")
    if min(x for x in (rate, burstiness, speedup) if x is not None) <= 0:
        usage_error("--rate, --burstiness and --speedup must be above 0")
    if trace is not None:
        if not trace.is_file():
            usage_error(f"--trace {trace}: no such file")
        return read_trace(trace, speedup)
    return ClosedLoop(concurrency) if rate is None else OpenLoop(rate, burstiness, seed)


def _counter(model: str | None) -> Callable[[str], int] | None:
    """Counts a text's tokens as `model` does."""
    if model is None:
        return None
    from octavo.tokenizer import load_tokenizer
    from octavo.weights import open_checkpoint, resolve

    tokenizer = load_tokenizer(open_checkpoint(resolve(model)))
    if tokenizer is None:
        usage_error(f"--tokenizer {model}: this model has no tokenizer")
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        usage_error(f"--extra-body {text!r}: expected a JSON object")
    return found


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[RequestRecord], None]]:
    """A bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), "requests", TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("requests", total=total)
        yield lambda record: progress.advance(task)


def _show(
    result: LoadResult, target: Target, json_file: Path | None, html_file: Path | None
) -> None:
    from rich.console import Console
    from rich.table import Table

    from octavo.bench.load.html import latency_rows, summary_rows, write_html

    title = f"{target.model or 'model'} at {target.url}"
    console = Console()
    numbers = Table("", "value", title=f"{title}: {result.load}; {result.prompts}")
    for row in summary_rows(result):
        numbers.add_row(*row)
    console.print(numbers)
    times = Table("milliseconds", "mean", "p50", "p90", "p99")
    for row in latency_rows(result):
        times.add_row(*row)
    console.print(times)
    if json_file is not None:
        found = {"url": target.url, "model": target.model, **result.as_dict(with_records=True)}
        json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if html_file is not None:
        write_html(html_file, result, title)
        print(f"written: {html_file}", file=sys.stderr)
