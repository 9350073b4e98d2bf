"""Runs the app with uvicorn and the engine in a child process."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import socket

import uvicorn
from fastapi import FastAPI

from octavo import logs
from octavo.engine.options import EngineOptions
from octavo.engine.process import EngineProcess
from octavo.records import replace
from octavo.serving.app import create_app, passes_bodies
from octavo.serving.context import Serving
from octavo.serving.drain import DrainingServer
from octavo.serving.guard import guarded
from octavo.serving.keys import Keyring, load_keyring
from octavo.serving.options import ServerOptions
from octavo.serving.tls import tls_context

BACKLOG = 2048

_log = logging.getLogger("octavo")


def serve(
    engine: EngineOptions,
    options: ServerOptions | None = None,
    *,
    factory: str = "octavo.engine.worker:load_engine",
) -> None:
    """Serve until SIGINT or SIGTERM. The port listens before the engine starts to load.

    The first signal ends the taking of requests (503 with Retry-After) and lets running ones finish
    for options.shutdown_timeout_s; the second ends everything. Raises OSError if the address is
    taken, and what kept the engine from starting or made it die for good.
    """
    options = options or ServerOptions()
    logs.configure(options.log_level, options.log_format)
    keyring = load_keyring(options.api_keys, options.api_key_file)
    if is_open_to_all(options, keyring):
        _log.warning("anyone who reaches %s may use this server: no keys are set", options.host)
    engine = replace(engine, tenant_weights={**keyring.weights, **engine.tenant_weights})
    client = EngineProcess(engine, factory=factory, supervision=options.supervision)
    listener = listen(options.host, options.port)
    with listener:
        asyncio.run(_serve(client, options, listener))
    if client.failure is not None:
        raise client.failure


async def _serve(client: EngineProcess, options: ServerOptions, listener: socket.socket) -> None:
    app = create_app(client, options)
    config = uvicorn_config(app, options)
    server = DrainingServer(config, app.state.serving, options.shutdown_timeout_s)
    watches = [
        asyncio.create_task(_stop_when_dead(client, server), name="engine-watch"),
        asyncio.create_task(
            _announce(app.state.serving, client, _url(listener, options.tls is not None)),
            name="announcement",
        ),
    ]
    await server.serve(sockets=[listener])
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


async def _stop_when_dead(client: EngineProcess, server: uvicorn.Server) -> None:
    await client.wait_dead()
    server.should_exit = True


async def _announce(serving: Serving, client: EngineProcess, address: str) -> None:
    model = client.options.model
    _log.info("listening on %s, loading %s", address, model)
    await client.wait_ready()
    await serving.wait_tokenizer()
    spare_collector()
    _log.info("ready, %s answers at %s/v1", model, address)


def spare_collector() -> None:
    """Have the garbage collector leave alone what is here to stay: to look through the modules and
    the tokenizer takes 20 ms, in which no token is sent."""
    gc.collect()
    gc.freeze()


def uvicorn_config(app: FastAPI, options: ServerOptions) -> uvicorn.Config:
    """How uvicorn runs an app of `create_app`. Raises InvalidParameterError if TLS files are not
    usable."""
    serving: Serving = app.state.serving
    config = uvicorn.Config(
        app,
        http=guarded(options.limits, serving.metrics.http, passes_bodies(app)),
        ws="none",
        log_config=None,
        timeout_graceful_shutdown=options.shutdown_timeout_s,
        access_log=False,
        server_header=False,
        lifespan="on",
    )
    if options.tls is not None:
        config.load()  # which would unset it
        config.ssl = tls_context(options.tls)
    return config


def is_open_to_all(options: ServerOptions, keyring: Keyring) -> bool:
    """Whether other machines can call without a key or a certificate."""
    if keyring or (options.tls is not None and options.tls.client_ca_file is not None):
        return False
    try:
        return not ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        return options.host != "localhost"


def _url(listener: socket.socket, tls: bool) -> str:
    scheme = "https" if tls else "http"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError if the address is taken or not this machine's.

    It names its protocol: asyncio switches Nagle's algorithm off only for sockets that do, and
    with it each answer on a kept connection would come 40 ms late.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    return listener
