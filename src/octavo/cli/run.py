"""`octavo run`: one prompt, one streamed answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.errors import usage_error
from octavo.cli.options import (
    Backend,
    EngineChoices,
    KvDtype,
    KvMemory,
    Lora,
    MaxModelLen,
    MaxTokens,
    MinP,
    ModelArg,
    Products,
    RepetitionPenalty,
    Seed,
    Stop,
    System,
    Temperature,
    Threads,
    TopK,
    TopP,
    Verbose,
    Weights,
    sampling_params,
)
from octavo.cli.parts import Piece, Printer
from octavo.cli.streams import read_file, read_lines

if TYPE_CHECKING:
    from octavo.cli.session import Session


def run(
    model: ModelArg,
    prompt: Annotated[
        str | None,
        typer.Argument(help="Text; without it, --file or stdin is read.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Read the prompt from a file.", show_default=False),
    ] = None,
    system: System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is: no chat template.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, not a stream.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but the answer.")
    ] = False,
    verbose: Verbose = False,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    ignore_eos: Annotated[
        bool,
        typer.Option("--ignore-eos", rich_help_panel="Sampling", help="Go on to --max-tokens."),
    ] = False,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
    max_model_len: MaxModelLen = None,
    kv_cache_memory: KvMemory = None,
    lora: Lora = None,
) -> None:
    """Answer one prompt: text to stdout as it comes, thinking and speed to stderr.

    [bold]Examples[/bold]

    octavo run smollm2 "Name three rivers."

    git diff | octavo run qwen2.5-coder-1.5b --system "Write a commit message." -q

    octavo run model.gguf --raw "Once upon a time" --temperature 0.8 --seed 7
    """
    from octavo.cli.session import Session

    text = _prompt_text(prompt, file)
    params = sampling_params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
    )
    choices = EngineChoices(
        threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory, lora, products
    )
    session = Session.open(model, choices, chats=not raw)
    if verbose:
        print(session.engine.plan, file=sys.stderr)
    try:
        pieces = session.stream(session.prompt_ids(text, system, raw), params, raw)
        if as_json:
            for _ in pieces:
                pass
            _print_json(session)
        else:
            _print_stream(session, pieces, quiet)
    finally:
        session.close()
    if session.last.finish_reason == "abort":
        raise typer.Exit(130)


def _prompt_text(prompt: str | None, file: Path | None) -> str:
    """The prompt from the argument, the file, or stdin when it is not a terminal."""
    if prompt is not None and file is not None:
        usage_error("give a PROMPT or --file, not both")
    if file is not None:
        return read_file(file, "--file")
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        usage_error("no prompt: give it as an argument, with --file, or on stdin")
    return "".join(read_lines())


def _print_stream(session: Session, pieces: Iterator[Piece], quiet: bool) -> None:
    printer = Printer(quiet)
    for piece in pieces:
        printer.show(piece)
    printer.end()
    if not quiet:
        print(f"\n{session.last.timing}", file=sys.stderr)


def _print_json(session: Session) -> None:
    answer = session.last
    calls = [{"name": name, "arguments": arguments} for name, arguments in answer.calls]
    result = {
        "model": session.engine.options.model,
        **({"reasoning": answer.reasoning} if answer.reasoning else {}),
        "text": answer.text,
        **({"tool_calls": calls} if calls else {}),
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "stats": answer.timing.as_dict(),
    }
    print(json.dumps(result, ensure_ascii=False))
