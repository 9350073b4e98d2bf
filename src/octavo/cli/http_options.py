"""Options of `octavo serve` about HTTP: access, limits, and what operators see."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli.options import parse_size

HTTP = "HTTP"
ACCESS = "Access"
SEEING = "Logs, metrics, traces"

ApiKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        envvar="OCTAVO_API_KEY",
        rich_help_panel=ACCESS,
        help="Clients must send one of these. May be repeated.",
        show_default=False,
    ),
]
ApiKeyFile = Annotated[
    str | None,
    typer.Option(
        "--api-key-file",
        envvar="OCTAVO_API_KEY_FILE",
        metavar="FILE",
        rich_help_panel=ACCESS,
        help="Further keys, a line each: NAME KEY [WEIGHT].",
        show_default=False,
    ),
]
TlsCertificate = Annotated[
    str | None,
    typer.Option(
        "--ssl-certfile", metavar="FILE", rich_help_panel=ACCESS, help="Serve HTTPS (PEM)."
    ),
]
TlsKey = Annotated[
    str | None,
    typer.Option("--ssl-keyfile", metavar="FILE", rich_help_panel=ACCESS, help="Its key (PEM)."),
]
TlsClientCa = Annotated[
    str | None,
    typer.Option(
        "--ssl-ca-certs",
        metavar="FILE",
        rich_help_panel=ACCESS,
        help="Clients must show a certificate signed by one of these.",
    ),
]
CorsOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        rich_help_panel=ACCESS,
        help="Let web pages from this origin call; * for any. May be repeated.",
        show_default="none",
    ),
]
Page = Annotated[
    bool,
    typer.Option("--page/--no-page", rich_help_panel=HTTP, help="A page to chat at /."),
]
MaxBodySize = Annotated[
    int,
    typer.Option(
        "--max-body-size",
        metavar="SIZE",
        parser=parse_size,
        rich_help_panel=HTTP,
        help="Largest request body, such as 8M.",
    ),
]
MaxConnections = Annotated[
    int, typer.Option(min=1, rich_help_panel=HTTP, help="Open connections at the same time.")
]
HeaderTimeout = Annotated[
    float,
    typer.Option(min=0.1, rich_help_panel=HTTP, help="Seconds for the head of a request."),
]
BodyTimeout = Annotated[
    float,
    typer.Option(
        min=0.1, rich_help_panel=HTTP, help="Seconds in which a body must bring 500 bytes each."
    ),
]
WriteTimeout = Annotated[
    float,
    typer.Option(min=0.1, rich_help_panel=HTTP, help="Seconds an answer may wait for its reader."),
]
LogLevel = Annotated[
    str,
    typer.Option(rich_help_panel=SEEING, help="critical, error, warning, info, debug or trace."),
]
LogFormat = Annotated[
    str,
    typer.Option(envvar="OCTAVO_LOG_FORMAT", rich_help_panel=SEEING, help="text or json."),
]
MetricsCompat = Annotated[
    str,
    typer.Option(
        rich_help_panel=SEEING, help="vllm: the metrics that vLLM has under vLLM's names."
    ),
]
TracesEndpoint = Annotated[
    str | None,
    typer.Option(
        "--otlp-traces-endpoint",
        envvar="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        metavar="URL",
        rich_help_panel=SEEING,
        help="Send OpenTelemetry traces there (OTLP over HTTP).",
        show_default="no traces",
    ),
]
Timings = Annotated[
    bool,
    typer.Option(
        "--timings",
        rich_help_panel=SEEING,
        help="Show timings in every answer, not only to those who ask.",
    ),
]
