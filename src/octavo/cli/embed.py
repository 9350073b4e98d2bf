"""`octavo embed` and `octavo rerank`: vectors of texts, and texts by relevance to a query."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.errors import usage_error
from octavo.cli.options import Backend, EngineChoices, MaxModelLen, ModelArg, Threads, Weights
from octavo.cli.streams import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo import LLM

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def embed(
    model: ModelArg,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Without any, each line of standard input."),
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="mean, last, cls; auto: as the model says.")
    ] = "auto",
    dimensions: Annotated[
        int | None,
        typer.Option(min=1, help="Keep so many leading numbers.", show_default="all"),
    ] = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(help="One of the model's prompts to put before each text."),
    ] = None,
    as_json: Json = False,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    max_model_len: MaxModelLen = None,
) -> None:
    """Embed texts: a line of numbers for each.

    [bold]Examples[/bold]

    octavo embed ./bge-small-en "a text" "another"

    octavo embed ./bge-small-en --json < lines.txt
    """
    from octavo.decoding.pooling import Pooling

    given = _texts(texts)
    choices = EngineChoices(threads, backend, weights, max_model_len=max_model_len)
    with _llm(choices, model, task="embed", pooling=pooling) as llm:
        outputs = llm.embed(given, Pooling(dimensions=dimensions), prompt_name=prompt_name)
    if as_json:
        data = [
            {"text": text, "tokens": len(o.prompt_token_ids), "embedding": o.embedding.tolist()}
            for text, o in zip(given, outputs, strict=True)
        ]
        print(json.dumps({"model": model, "data": data}, ensure_ascii=False))
        return
    for output in outputs:
        print(*(f"{number:.7g}" for number in output.embedding))


def rerank(
    model: ModelArg,
    query: Annotated[str, typer.Argument(help="What documents are to be relevant to.")],
    documents: Annotated[
        list[str] | None,
        typer.Argument(metavar="DOCUMENT...", help="Without any, each line of standard input."),
    ] = None,
    top_n: Annotated[
        int | None, typer.Option(min=1, help="Only so many, the best.", show_default="all")
    ] = None,
    as_json: Json = False,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    max_model_len: MaxModelLen = None,
) -> None:
    """Documents by their relevance to a query, by a cross-encoder or by embeddings.

    [bold]Example[/bold]

    octavo rerank ./bge-reranker-base "what is a panda?" "a bear" "a car"
    """
    given = _texts(documents)
    choices = EngineChoices(threads, backend, weights, max_model_len=max_model_len)
    with _llm(choices, model) as llm:
        if llm.options.task == "generate":
            usage_error(f"{model} is a model to generate text; give an encoder")
        scores = [output.score for output in llm.score(query, given)]
    order = sorted(range(len(given)), key=lambda index: (-scores[index], index))[:top_n]
    if as_json:
        results = [
            {"index": i, "relevance_score": scores[i], "document": {"text": given[i]}}
            for i in order
        ]
        print(json.dumps({"model": model, "results": results}, ensure_ascii=False))
        return
    for index in order:
        print(f"{scores[index]:9.5f}  {given[index]}")


def _texts(given: list[str] | None) -> list[str]:
    texts = given or [line.rstrip("\n") for line in read_lines()]
    if not texts:
        usage_error("there is nothing to read; give texts, or lines on standard input")
    return texts


@contextmanager
def _llm(choices: EngineChoices, model: str, **options: str) -> Iterator[LLM]:
    from octavo import LLM
    from octavo.cli.progress import download_progress
    from octavo.engine import Engine

    with download_progress() as progress:
        engine = Engine.from_options(choices.options(model, **options), progress)
    with LLM.from_engine(engine) as llm:
        yield llm
