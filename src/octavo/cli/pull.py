"""`octavo pull`: fetch a model into the cache, once."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli.errors import usage_error


def pull(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A short name (smollm2), a Hugging Face id (owner/name) or modelscope:owner/name.",
            show_default=False,
        ),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list", help="List the models known by a short name.")
    ] = False,
) -> None:
    """Fetch a model and print where it lies. Nothing is fetched twice.

    [bold]Examples[/bold]

    octavo pull smollm2

    octavo pull --list
    """
    if list_models:
        _print_models()
    elif model is None:
        usage_error("pull: give a MODEL, or --list")
    else:
        _pull(model)


def _pull(model: str) -> None:
    from octavo.cli.progress import download_progress
    from octavo.weights import resolve

    with download_progress() as progress:
        path = resolve(model, progress=progress)
    print(path)


def _print_models() -> None:
    from octavo.cli.text import size
    from octavo.weights import DEMO_MODELS

    for model in DEMO_MODELS.values():
        print(f"{model.name:<24} {size(model.size_bytes):>10}")
