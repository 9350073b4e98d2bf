"""`octavo eval`: how good a model's predictions are, not how fast they come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.options import Backend, KvDtype, ModelArg, Products, Threads, Weights, writable
from octavo.cli.streams import read_file

if TYPE_CHECKING:
    from octavo.eval import Divergence, EngineSource, Estimate, Progress, Window

app = typer.Typer(
    no_args_is_help=True,
    help="Measure quality: perplexity and KL divergence.",
    add_completion=False,
)

TextFile = Annotated[
    Path | None,
    typer.Option(
        "--text",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="UTF-8 text to predict.",
        show_default="built in",
    ),
]
Context = Annotated[
    int, typer.Option("--context", min=2, help="Tokens of a window; windows are independent.")
]
Skip = Annotated[
    int | None,
    typer.Option(
        "--skip",
        min=0,
        help="Tokens of each window that are context only.",
        show_default="half of the window",
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option("--tokens", min=2, help="Use only the beginning of the text.", show_default="all"),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", callback=writable, help="Also write results.", show_default=False
    ),
]


@dataclass(frozen=True)
class _Text:
    """What is predicted, as the command line says it."""

    file: Path | None
    context: int
    skip: int | None
    tokens: int | None

    def windows(self, source: EngineSource) -> list[Window]:
        from octavo.eval import default_text, windows_of

        text = read_file(self.file, "--text") if self.file else default_text()
        ids = source.token_ids(text)
        return windows_of(ids, self.context, skip=self.skip, bos=source.bos, max_tokens=self.tokens)


@app.callback()
def evaluate() -> None:
    """Measure quality: perplexity and KL divergence."""


@app.command()
def ppl(
    model: ModelArg,
    text: TextFile = None,
    context: Context = 512,
    skip: Skip = None,
    tokens: Tokens = None,
    json_file: JsonFile = None,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
) -> None:
    """Perplexity: among how many equally likely tokens the model is undecided; lower is better.

    The text is cut into windows; in each, tokens after the first half are scored, as llama.cpp's
    tool does. Perplexities compare only on the same text and tokenizer.

    [bold]Examples[/bold]

    octavo eval ppl smollm2

    octavo eval ppl smollm2 --text notes.txt --context 1024 --json ppl.json
    """
    from octavo.eval import perplexity

    asked = _Text(text, context, skip, tokens)
    with _opened(model, context, threads, backend, weights, kv_dtype, products) as source:
        windows = asked.windows(source)
        with _progress() as report:
            result = perplexity(source, windows, report)
        facts = _facts(asked, [source], windows)
    value = result.perplexity
    print(f"perplexity {_pm(value, 3)} over {result.num_tokens:,} tokens")
    print(f"NLL        {_pm(result.nll, 4)} nats a token")
    _write(json_file, facts | {"result": result.as_dict()})


@app.command()
def kl(
    model: ModelArg,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL",
            help="What to compare with.",
            show_default="the same file, weights widened to float32",
        ),
    ] = None,
    text: TextFile = None,
    context: Context = 512,
    skip: Skip = None,
    tokens: Tokens = None,
    json_file: JsonFile = None,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
    reference_weights: Annotated[
        str, typer.Option("--reference-weights", rich_help_panel="Engine", help="As --weights.")
    ] = "float",
) -> None:
    """KL divergence: what the next-token distributions lose against a reference; 0 is nothing.

    Without --reference this shows what computing with quantized activations and a 16-bit KV cache
    costs; with the unquantized model as reference, what quantizing it has cost. Both models are in
    memory at once.

    [bold]Examples[/bold]

    octavo eval kl smollm2

    octavo eval kl model-q4.gguf --reference model-f16.gguf --text notes.txt
    """
    from octavo.eval import divergence

    asked = _Text(text, context, skip, tokens)
    base = (reference or model, context, threads, backend, reference_weights)
    with (
        _opened(*base, "auto", products) as expected,
        _opened(model, context, threads, backend, weights, kv_dtype, products) as source,
    ):
        windows = asked.windows(source)
        if reference is not None:
            _check_same_ids(asked, expected, windows)
        with _progress() as report:
            (result,) = divergence(expected, [source], windows, report)
        facts = _facts(asked, [source, expected], windows)
    _print_divergence(result)
    _write(json_file, facts | {"result": result.as_dict()})


@contextmanager
def _opened(
    model: str,
    context: int,
    threads: int,
    backend: str,
    weights: str,
    kv_dtype: str,
    products: str = "auto",
) -> Iterator[EngineSource]:
    from octavo.cli.progress import download_progress
    from octavo.eval import open_source

    with download_progress() as progress:
        source = open_source(
            model,
            context=context,
            weights=weights,
            kv_dtype=kv_dtype,
            products=products,
            backend=backend,
            num_threads=threads,
            progress=progress,
        )
    try:
        yield source
    finally:
        source.close()


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = ("tokens", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("tokens", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _check_same_ids(asked: _Text, expected: EngineSource, windows: Sequence[Window]) -> None:
    from octavo.errors import InvalidParameterError

    if asked.windows(expected) != windows:
        raise InvalidParameterError(
            "reference", "splits the text into other tokens; compare models that share a tokenizer"
        )


def _facts(
    asked: _Text, sources: Sequence[EngineSource], windows: Sequence[Window]
) -> dict[str, Any]:
    from octavo import __version__

    return {
        "octavo": __version__,
        "text": str(asked.file) if asked.file else "built in",
        "context": len(windows[0].ids),
        "skip": windows[0].first,
        "windows": len(windows),
        "models": [asdict(source.engine.options) for source in sources],
    }


def _print_divergence(result: Divergence) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result.num_tokens:,} tokens, ± standard error", title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    rows = [
        ("KL divergence, mean (nats)", _pm(result.kl, 5)),
        ("KL divergence, median", f"{result.kl_median:.5f}"),
        ("KL divergence, 99 %", f"{result.kl_p99:.5f}"),
        ("KL divergence, largest", f"{result.kl_max:.5f}"),
        ("same most likely token", f"{result.agreement.mean:.2%} ± {result.agreement.stderr:.2%}"),
        ("perplexity", _pm(result.candidate.perplexity, 3)),
        ("perplexity of the reference", _pm(result.reference.perplexity, 3)),
        ("ln of their ratio", _pm(result.excess, 5)),
    ]
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _pm(estimate: Estimate, digits: int) -> str:
    return f"{estimate.mean:.{digits}f} ± {estimate.stderr:.{digits}f}"


def _write(path: Path | None, report: dict[str, Any]) -> None:
    if path:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
