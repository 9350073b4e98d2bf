"""How the HTTP server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.engine.supervision import Supervision
from octavo.logs import Format
from octavo.serving.metric_names import Compat


@dataclass(frozen=True)
class TlsOptions:
    """PEM files. client_ca_file: clients must show a certificate that it has signed."""

    certificate_file: str
    key_file: str
    client_ca_file: str | None = None


@dataclass(frozen=True)
class ClientLimits:
    """header_timeout_s: from the first byte of a head (or the connection) to its end. A body must
    bring min_body_bytes_per_s on average in every body_timeout_s. write_timeout_s: how long an
    answer may wait for its reader. max_connections: at the same time."""

    header_timeout_s: float = 10.0
    body_timeout_s: float = 20.0
    min_body_bytes_per_s: int = 500
    write_timeout_s: float = 60.0
    max_connections: int = 2048


@dataclass(frozen=True)
class ServerOptions:
    """How the server listens, whom it lets in, and what it shows.

    port, grpc_port: 0 chooses a free one; grpc_port None: no gRPC.
    served_model_names: the model's names in the API, the first one shown; empty for the name it was
        asked for by.
    api_keys, api_key_file: clients must send one of these keys; see keys.read_key_file.
    tls: HTTPS instead of HTTP.
    cors_origins: web pages from there may call ("*": from anywhere).
    limits: on slow and many clients.
    max_body_bytes: larger bodies get 413.
    page: serve a page to chat and to watch the server at /.
    shutdown_timeout_s: how long running requests may go on after SIGTERM.
    supervision: when the engine counts as hung or hopeless.
    stall_timeout_s: without progress for so long, /health/progress says 503.
    data_dir: the folder that keeps uploaded files and batches (None: those routes are off), where a
        file may have max_file_bytes and all together max_data_bytes; and stored responses, which
        without it are in memory only.
    batch_concurrency: requests of a batch that run at once.
    tool_parser, reasoning_parser: how the model writes calls and thoughts, by name, or "auto" for
        what its chat template says.
    trust_request_chat_template: requests may bring a template of their own.
    lora_loading: requests may load adapters from folders of this machine, and unload them.
    log_level: "critical" to "trace"; "info" says where the server listens, when it is ready, and
        how each request went.
    log_format: "text" for people or "json".
    metrics_compat: "vllm" serves the metrics that vLLM has under vLLM's names.
    otlp_traces_endpoint: where OpenTelemetry traces go (OTLP over HTTP).
    always_timings: every answer brings the request's timings, not only those that ask for them.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    api_key_file: str | None = None
    tls: TlsOptions | None = None
    cors_origins: tuple[str, ...] = ()
    limits: ClientLimits = ClientLimits()
    max_body_bytes: int = 8 * 2**20
    shutdown_timeout_s: int = 15
    grpc_port: int | None = None
    data_dir: str | None = None
    max_file_bytes: int = 256 * 2**20
    max_data_bytes: int = 8 * 2**30
    batch_concurrency: int = 8
    log_level: str = "info"
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    trust_request_chat_template: bool = False
    lora_loading: bool = False
    page: bool = True
    metrics_compat: Compat = "octavo"
    log_format: Format = "text"
    otlp_traces_endpoint: str | None = None
    always_timings: bool = False
    supervision: Supervision = field(default_factory=Supervision)
    stall_timeout_s: float = 10.0
