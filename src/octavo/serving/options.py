"""How the HTTP server is set up."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.logs import Format
from octavo.serving.metric_names import Compat


@dataclass(frozen=True)
class ServerOptions:
    """port 0 chooses a free one. served_model_names: the model's names in the API, the first one
    shown; empty for the name it was asked for by. api_keys: clients must send one of them (not for
    /health). max_body_bytes: larger bodies get 413. shutdown_timeout_s: how long running requests
    may go on after SIGTERM. log_level: "critical" to "trace"; "info" says where the server listens
    and when it is ready, "debug" also logs every request. metrics_compat: "vllm" serves the metrics
    that vLLM has under vLLM's names. log_format: "text" for people or "json". always_timings: every
    answer brings the request's timings, not only those that ask for them. data_dir: the folder that
    keeps uploaded files and batches (None: those routes are off), where a file may have
    max_file_bytes and all together max_data_bytes. batch_concurrency: requests of a batch that run
    at once.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    max_body_bytes: int = 8 * 2**20
    shutdown_timeout_s: int = 15
    data_dir: str | None = None
    max_file_bytes: int = 256 * 2**20
    max_data_bytes: int = 8 * 2**30
    batch_concurrency: int = 8
    log_level: str = "info"
    metrics_compat: Compat = "octavo"
    log_format: Format = "text"
    always_timings: bool = False
