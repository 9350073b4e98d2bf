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
    parse_size,
)
from octavo.errors import EngineError

HTTP = "HTTP"
FILES = "Files and batches"


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
    max_queue: Annotated[
        int, typer.Option(min=1, rich_help_panel="Engine", help="Requests that may wait.")
    ] = 1024,
    prefix_caching: Annotated[
        bool,
        typer.Option(
            "--prefix-caching/--no-prefix-caching",
            rich_help_panel="Engine",
            help="Keep and find computed prompts.",
        ),
    ] = True,
    scheduling_policy: Annotated[
        str, typer.Option(rich_help_panel="Engine", help="fcfs or priority.")
    ] = "fcfs",
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            metavar="FOLDER",
            rich_help_panel=FILES,
            help="Keep uploaded files and batches here.",
            show_default="no files, no batches",
        ),
    ] = None,
    max_file_size: Annotated[
        int,
        typer.Option(
            metavar="SIZE", parser=parse_size, rich_help_panel=FILES, help="Largest upload."
        ),
    ] = "256M",  # type: ignore[assignment]  # parsed
    max_data_size: Annotated[
        int,
        typer.Option(
            metavar="SIZE", parser=parse_size, rich_help_panel=FILES, help="All files together."
        ),
    ] = "8G",  # type: ignore[assignment]  # parsed
    batch_concurrency: Annotated[
        int, typer.Option(min=1, rich_help_panel=FILES, help="Requests of a batch run at once.")
    ] = 8,
    log_level: Annotated[
        str, typer.Option(rich_help_panel=HTTP, help="critical, error, warning, info or debug.")
    ] = "info",
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
    from octavo.serving import ServerOptions
    from octavo.serving import serve as run_server

    choices = EngineChoices(threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory)
    engine = choices.options(
        model,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_queue=max_queue,
        enable_prefix_caching=prefix_caching,
        scheduling_policy=scheduling_policy,
    )
    http = ServerOptions(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        served_model_names=tuple(served_model_name or ()),
        log_level=log_level,
        data_dir=data_dir,
        max_file_bytes=max_file_size,
        max_data_bytes=max_data_size,
        batch_concurrency=batch_concurrency,
    )
    try:
        run_server(engine, http)
    except OSError as error:
        raise EngineError(f"serve: cannot listen on {host}:{port}: {error.strerror}") from error
