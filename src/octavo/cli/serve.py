"""`octavo serve`: the HTTP server. Everything it does is in octavo.serving."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from octavo.cli.errors import usage_error
from octavo.cli.options import (
    Backend,
    EngineChoices,
    KvDtype,
    KvMemory,
    MaxModelLen,
    ModelArg,
    Threads,
    Weights,
)

HTTP = "HTTP"


def serve(
    model: ModelArg,
    host: Annotated[str, typer.Option(rich_help_panel=HTTP, help="Address to listen on.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, rich_help_panel=HTTP, help="TCP port.")
    ] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            envvar="OCTAVO_API_KEY",
            rich_help_panel=HTTP,
            help="Clients must send one of these. May be repeated.",
            show_default=False,
        ),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-model-name",
            rich_help_panel=HTTP,
            help="The model's name in the API. May be repeated.",
            show_default="MODEL",
        ),
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option(min=1, rich_help_panel="Engine", help="Sequences that run at once.")
    ] = 64,
    max_num_batched_tokens: Annotated[
        int, typer.Option(min=1, rich_help_panel="Engine", help="Token budget of one step.")
    ] = 512,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    max_model_len: MaxModelLen = None,
    kv_cache_memory: KvMemory = None,
) -> None:
    """Serve a model over the OpenAI protocol.

    [bold]Example[/bold]

    octavo serve smollm2 --port 8000
    """
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "zmq")):
        usage_error("the server's parts are not installed: pip install 'octavo[serve]'")
    choices = EngineChoices(threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory)
    raise NotImplementedError(choices)
