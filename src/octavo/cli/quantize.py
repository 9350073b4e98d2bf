"""`octavo quantize`: the same model with fewer bits a weight."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import ModelArg, Threads, writable

if TYPE_CHECKING:
    from octavo.quantize import Progress, Written
    from octavo.quantize.report import Report


def quantize(
    model: ModelArg,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A .gguf file, or a folder of compressed-tensors (int4-gN, int8, fp8).",
        ),
    ],
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            help="q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, int4-g32, int4-g128, int8, fp8,"
            " mxfp4, ternary,"
            " or mixed: by measured errors within --target-bits.",
        ),
    ] = "q4_k",
    method: Annotated[
        str,
        typer.Option(
            "--method", help="rtn: round to nearest; awq, gptq, awq+gptq: by a calibration text."
        ),
    ] = "awq",
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="UTF-8 text to observe inputs on.",
            show_default="built in",
        ),
    ] = None,
    calibration_tokens: Annotated[
        int, typer.Option("--calibration-tokens", min=2, help="How much of it to use.")
    ] = 8192,
    target_bits: Annotated[
        float, typer.Option("--target-bits", min=1, help="Of mixed: bits a weight of the file.")
    ] = 5.0,
    report_tokens: Annotated[
        int,
        typer.Option("--report-tokens", min=0, help="Text for the report at the end; 0: none."),
    ] = 2048,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            callback=writable,
            help="Also write the report.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Write a model with fewer bits a weight, for Octavo and, as GGUF, llama.cpp.

    The model is a GGUF file or a Hugging Face folder; weights stream through, one at a time. An
    interrupted run goes on when the same command is given again. At the end both are run: size,
    perplexity, KL divergence, agreement, speed.

    [bold]Examples[/bold]

    octavo quantize ./Qwen2.5-1.5B -o qwen.gguf --scheme q4_k

    octavo quantize ./Qwen2.5-1.5B -o ./qwen-int4 --scheme int4-g32 --method gptq

    octavo quantize model-f16.gguf -o small.gguf --scheme mixed --target-bits 5 --method gptq
    """
    from octavo.cli.progress import download_progress
    from octavo.quantize import Options
    from octavo.quantize import quantize as run
    from octavo.weights import resolve

    with download_progress() as progress:
        path = resolve(model, progress=progress)
    options = Options(
        scheme=scheme,
        method=method,
        calibration=calibration,
        tokens=calibration_tokens,
        threads=threads,
        force=force,
        target_bits=target_bits,
    )
    with _progress() as report:
        written = run(path, output, options, report)
    _say(written)
    if report_tokens:
        from octavo.quantize.report import compare

        result = compare(path, output, tokens=report_tokens, threads=threads)
        _print(result)
        if json_file:
            facts = {"scheme": scheme, "method": method, "types": dict(written.types)}
            text = json.dumps(facts | result.as_dict(), indent=2)
            json_file.write_text(text + "\n", encoding="utf-8")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar with the time left on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        "{task.description}",
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("weights", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=f"{what[:40]:40}"
        )


def _say(written: Written) -> None:
    from octavo.cli.text import size

    for warning in written.warnings:
        print(f"octavo: warning: {warning}", file=sys.stderr)
    for change, count in written.fallbacks.items():
        why = "their rows are no multiple of its block"
        print(f"octavo: {count} tensors {change}: {why}", file=sys.stderr)
    if written.resumed:
        print("octavo: went on with what an earlier run had written", file=sys.stderr)
    types = ", ".join(f"{count} {name}" for name, count in written.types.items())
    shown = f"{size(written.size_bytes)}, {written.bits_per_weight:.2f} bits a weight"
    print(f"{written.path}: {shown} ({types})")


def _print(result: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    from octavo.cli.text import size

    table = Table(title_justify="left")
    for name in ("", "before", "after"):
        table.add_column(name, justify="right" if name else "left")
    before, after, quality = result.before, result.after, result.divergence
    reference, candidate = quality.reference.perplexity, quality.candidate.perplexity
    rows = [
        ("size", size(before.size_bytes), size(after.size_bytes)),
        ("bits a weight", f"{before.bits_per_weight:.2f}", f"{after.bits_per_weight:.2f}"),
        (
            "perplexity",
            f"{reference.mean:.3f} ± {reference.stderr:.3f}",
            f"{candidate.mean:.3f} ± {candidate.stderr:.3f}",
        ),
        ("KL divergence (nats)", "0", f"{quality.kl.mean:.5f} ± {quality.kl.stderr:.5f}"),
        (
            "same most likely token",
            "100 %",
            f"{quality.agreement.mean:.2%} ± {quality.agreement.stderr:.2%}",
        ),
        ("tokens/s, one stream", f"{before.tokens_per_s:.1f}", f"{after.tokens_per_s:.1f}"),
    ]
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print(f"{quality.num_tokens:,} tokens of text, {result.text}; ± standard error")
