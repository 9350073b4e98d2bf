"""`octavo serve`: the HTTP server. Everything it does is in octavo.serving."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.errors import usage_error
from octavo.cli.http_options import (
    HTTP,
    ApiKeyFile,
    ApiKeyOption,
    BodyTimeout,
    CorsOrigin,
    HeaderTimeout,
    LogFormat,
    LogLevel,
    MaxBodySize,
    MaxConnections,
    MetricsCompat,
    Page,
    Timings,
    TlsCertificate,
    TlsClientCa,
    TlsKey,
    TracesEndpoint,
    WriteTimeout,
)
from octavo.cli.options import (
    Adapters,
    Backend,
    EngineChoices,
    KvDtype,
    KvMemory,
    MaxModelLen,
    ModelArg,
    Products,
    Threads,
    Weights,
    named_adapters,
    parse_size,
)
from octavo.errors import EngineError
from octavo.parsing import reasoning_parser_names, tool_parser_names

FILES = "Files and batches"
SAFETY = "Under stress"
CHAT = "Chat"

if TYPE_CHECKING:
    from octavo.serving.options import TlsOptions


def serve(
    model: ModelArg,
    host: Annotated[str, typer.Option(rich_help_panel=HTTP, help="Address to listen on.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, rich_help_panel=HTTP, help="TCP port.")
    ] = 8000,
    api_key: ApiKeyOption = None,
    api_key_file: ApiKeyFile = None,
    ssl_certfile: TlsCertificate = None,
    ssl_keyfile: TlsKey = None,
    ssl_ca_certs: TlsClientCa = None,
    cors_origin: CorsOrigin = None,
    page: Page = True,
    max_body_size: MaxBodySize = "8M",  # type: ignore[assignment]  # the parser makes it an int
    max_connections: MaxConnections = 2048,
    header_timeout: HeaderTimeout = 10.0,
    body_timeout: BodyTimeout = 20.0,
    write_timeout: WriteTimeout = 60.0,
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
    max_num_mixed_tokens: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel="Engine", help="Prompt tokens of a step in which others decode."
        ),
    ] = 192,
    max_queue: Annotated[
        int, typer.Option(min=1, rich_help_panel="Engine", help="Requests that may wait.")
    ] = 1024,
    max_queued_tokens: Annotated[
        int, typer.Option(min=1, rich_help_panel="Engine", help="Prompt tokens that may wait.")
    ] = 2_000_000,
    max_grammar_bytes: Annotated[
        int, typer.Option(min=1, rich_help_panel=SAFETY, help="Size of a request's schema.")
    ] = 128 * 1024,
    max_grammar_depth: Annotated[
        int, typer.Option(min=1, rich_help_panel=SAFETY, help="Nesting of a request's schema.")
    ] = 64,
    prefix_caching: Annotated[
        bool,
        typer.Option(
            "--prefix-caching/--no-prefix-caching",
            rich_help_panel="Engine",
            help="Keep and find computed prompts.",
        ),
    ] = True,
    tenant_weight: Annotated[
        list[str] | None,
        typer.Option(
            "--tenant-weight",
            metavar="NAME=NUMBER",
            rich_help_panel=SAFETY,
            help="A tenant's share of the service beside others. May be repeated.",
            show_default="1 each",
        ),
    ] = None,
    drain_timeout: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=SAFETY, help="Seconds running requests may go on after SIGTERM."
        ),
    ] = 15,
    hang_timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            rich_help_panel=SAFETY,
            help="Seconds a working engine may hang before it is replaced.",
        ),
    ] = 60.0,
    max_restarts: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=SAFETY, help="Crashes in a row until the server gives up."
        ),
    ] = 5,
    max_request_crashes: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=SAFETY, help="Crashes over one request until it is given up."
        ),
    ] = 3,
    max_stream_backlog: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=SAFETY, help="Bytes of an answer that may wait for its reader."
        ),
    ] = 4 * 2**20,
    task: Annotated[
        str,
        typer.Option(
            rich_help_panel="Engine",
            help="generate, embed or score (pairs of texts); auto: what the model is for.",
        ),
    ] = "auto",
    pooling: Annotated[
        str,
        typer.Option(
            rich_help_panel="Engine",
            help="How embeddings are pooled: mean, last, cls; auto: as the model says.",
        ),
    ] = "auto",
    lora: Adapters = None,
    lora_loading: Annotated[
        bool,
        typer.Option(
            "--lora-loading",
            rich_help_panel="Engine",
            help="Let clients load adapters from folders of this machine (/v1/load_lora_adapter).",
        ),
    ] = False,
    max_lora_rank: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            rich_help_panel="Engine",
            help="Largest rank of adapters loaded later.",
            show_default="64 with --lora-loading",
        ),
    ] = None,
    scheduling_policy: Annotated[
        str, typer.Option(rich_help_panel="Engine", help="fcfs or priority.")
    ] = "fcfs",
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            rich_help_panel=HTTP,
            help="Serve gRPC too, on this port.",
            show_default="no gRPC",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            metavar="FOLDER",
            rich_help_panel=FILES,
            help="Keep uploaded files, batches and stored responses here.",
            show_default="no files, no batches; responses in memory",
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
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    metrics_compat: MetricsCompat = "octavo",
    timings: Timings = False,
    otlp_traces_endpoint: TracesEndpoint = None,
    tool_parser: Annotated[
        str,
        typer.Option(
            rich_help_panel=CHAT,
            metavar="NAME",
            help="How the model writes tool calls: auto (as its chat template says), "
            + ", ".join(tool_parser_names()),
        ),
    ] = "auto",
    reasoning_parser: Annotated[
        str,
        typer.Option(
            rich_help_panel=CHAT,
            metavar="NAME",
            help="How it marks its thinking: auto, " + ", ".join(reasoning_parser_names()),
        ),
    ] = "auto",
    trust_request_chat_template: Annotated[
        bool,
        typer.Option(
            "--trust-request-chat-template",
            rich_help_panel=CHAT,
            help="Let requests bring a chat template of their own.",
        ),
    ] = False,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
    max_model_len: MaxModelLen = None,
    kv_cache_memory: KvMemory = None,
) -> None:
    """Serve a model over the OpenAI protocol.

    [bold]Example[/bold]

    octavo serve smollm2 --port 8000
    """
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "zmq")):
        usage_error("the server's parts are not installed: pip install 'octavo[serve]'")
    if grpc_port is not None and importlib.util.find_spec("grpc_reflection") is None:
        usage_error("gRPC is not installed: pip install 'octavo[serve,grpc]'")
    _check_parser("--tool-parser", tool_parser, tool_parser_names())
    _check_parser("--reasoning-parser", reasoning_parser, reasoning_parser_names())
    from octavo.engine.supervision import Supervision
    from octavo.serving import ServerOptions
    from octavo.serving import serve as run_server
    from octavo.serving.options import ClientLimits

    choices = EngineChoices(
        threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory, products=products
    )
    engine = choices.options(
        model,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_mixed_tokens=max_num_mixed_tokens,
        max_queue=max_queue,
        max_queued_tokens=max_queued_tokens,
        max_grammar_bytes=max_grammar_bytes,
        max_grammar_depth=max_grammar_depth,
        enable_prefix_caching=prefix_caching,
        scheduling_policy=scheduling_policy,
        task=task,
        pooling=pooling,
        tenant_weights=dict(map(_weight, tenant_weight or ())),
        lora=named_adapters(lora or [], (model, *(served_model_name or ()))),
        max_lora_rank=max_lora_rank or (64 if lora_loading else 0),
    )
    http = ServerOptions(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        api_key_file=api_key_file,
        tls=_tls(ssl_certfile, ssl_keyfile, ssl_ca_certs),
        cors_origins=tuple(cors_origin or ()),
        limits=ClientLimits(header_timeout, body_timeout, 500, write_timeout, max_connections),
        page=page,
        max_body_bytes=max_body_size,
        served_model_names=tuple(served_model_name or ()),
        log_level=log_level,
        grpc_port=grpc_port,
        data_dir=data_dir,
        max_file_bytes=max_file_size,
        max_data_bytes=max_data_size,
        batch_concurrency=batch_concurrency,
        log_format=_one_of("--log-format", log_format, "text", "json"),
        metrics_compat=_one_of("--metrics-compat", metrics_compat, "octavo", "vllm"),
        always_timings=timings,
        otlp_traces_endpoint=otlp_traces_endpoint,
        shutdown_timeout_s=drain_timeout,
        supervision=Supervision(
            hang_timeout, max_restarts, max_request_crashes, max_stream_backlog
        ),
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        trust_request_chat_template=trust_request_chat_template,
        lora_loading=lora_loading,
    )
    try:
        run_server(engine, http)
    except OSError as error:
        raise EngineError(f"serve: cannot listen on {host}:{port}: {error.strerror}") from error


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = 0.0
    if not name or not 0 < weight < float("inf"):
        usage_error(f"--tenant-weight: got {text!r}, expected NAME=NUMBER, a number above 0")
    return name, weight


def _tls(certificate: str | None, key: str | None, client_ca: str | None) -> TlsOptions | None:
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        usage_error("HTTPS needs both --ssl-certfile and --ssl-keyfile")
    from octavo.serving.options import TlsOptions

    return TlsOptions(certificate, key, client_ca)


def _one_of(option: str, value: str, *known: str) -> Any:
    if value not in known:
        usage_error(f"{option}: got {value!r}, expected {' or '.join(known)}")
    return value


def _check_parser(option: str, name: str, known: list[str]) -> None:
    if name not in ("auto", *known):
        usage_error(f"{option}: got {name!r}, expected auto, {', '.join(known)}")
