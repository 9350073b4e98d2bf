"""The FastAPI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from octavo import __version__
from octavo.errors import EngineError, InvalidParameterError
from octavo.serving import anthropic, errors, health, lora, ollama, openai, page, rerank, tokens
from octavo.serving.access import ApiKeys
from octavo.serving.context import EngineClient, Serving
from octavo.serving.describe import complete
from octavo.serving.observe import Observer, Tracer
from octavo.serving.openai import responses
from octavo.serving.options import ServerOptions
from octavo.serving.storage import Storage


def create_app(
    client: EngineClient, options: ServerOptions | None = None, tracer: Tracer | None = None
) -> FastAPI:
    """An app that starts `client` with its lifespan and closes it at the end.

    It answers at once; until the engine is ready, /health and the completion routes say 503.
    tracer: makes spans; None for what the options say.
    """
    options = options or ServerOptions()
    tracer = tracer or _tracer(options)
    serving = Serving(client, options)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await serving.start()
        try:
            if options.data_dir is not None:
                serving.storage = Storage(Path(options.data_dir), serving)
                _open_responses(app.state.responses, Path(options.data_dir))
                serving.storage.start(app)
            if options.grpc_port is not None:
                from octavo.serving.rpc import RpcServer  # needs an extra

                serving.rpc = RpcServer(serving)
                await serving.rpc.start()
            yield
        finally:
            if serving.rpc is not None:
                await serving.rpc.stop()
            await app.state.responses.close()
            if serving.storage is not None:
                await serving.storage.stop()
            await serving.close()
            if tracer is not None:
                await asyncio.to_thread(tracer.close)

    app = FastAPI(
        title="Octavo",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # they would run another host's scripts beside the page's key
        redoc_url=None,
    )
    app.state.serving = serving
    app.state.responses = responses.ResponseStore()
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    if options.page:
        app.include_router(page.router)  # before Ollama's, which also answers at /
    app.include_router(openai.router)
    app.include_router(responses.router)
    app.include_router(anthropic.router)
    app.include_router(ollama.router)
    app.include_router(tokens.router)
    app.include_router(openai.embeddings_router)
    app.include_router(rerank.router)
    app.include_router(openai.files_router)
    app.include_router(openai.batches_router)
    if options.lora_loading:
        app.include_router(lora.router)
    app.include_router(health.router)
    errors.install(app)
    _add_layers(app, serving, options, tracer)
    return app


def _open_responses(store: responses.ResponseStore, folder: Path) -> None:
    """Once the folder is this server's alone."""
    try:
        store.open(folder / "responses")
    except OSError as error:
        raise EngineError(f"serve: --data-dir {folder}: {error.strerror}") from error


def _tracer(options: ServerOptions) -> Tracer | None:
    if options.otlp_traces_endpoint is None:
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        message = "tracing is not installed: pip install 'octavo[otel]'"
        raise InvalidParameterError("otlp_traces_endpoint", message)
    from octavo.serving.tracing import trace_to  # needs an extra

    return trace_to(options.otlp_traces_endpoint)


def _add_layers(
    app: FastAPI, serving: Serving, options: ServerOptions, tracer: Tracer | None
) -> None:
    """What every request passes, the innermost first."""
    if serving.keyring:
        app.add_middleware(ApiKeys, keyring=serving.keyring)
    if options.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("X-Request-Id", "Retry-After", "Server-Timing"),
        )
    app.add_middleware(
        Observer,
        metrics=serving.metrics,
        tracer=tracer,
        always_timings=options.always_timings,
    )


def passes_bodies(app: FastAPI) -> bool:
    """Whether every layer hands bodies on as they are. Of layers that others added nobody knows."""
    known: set[object] = {ApiKeys, CORSMiddleware, Observer}
    return all(layer.cls in known for layer in app.user_middleware)


def _describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas of bodies that the handlers themselves read."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        app.openapi_schema = complete(document, app.state.serving.names)
    return app.openapi_schema
