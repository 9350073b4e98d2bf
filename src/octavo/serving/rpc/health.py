"""The standard gRPC health service: SERVING while requests are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo.serving.context import Serving
from octavo.serving.rpc.status import Context

POLL_S = 0.2


class Health(health_pb2_grpc.HealthServicer):
    """services: the names that may be asked for; "" is the whole server."""

    def __init__(self, serving: Serving, services: tuple[str, ...]) -> None:
        self._serving, self._services = serving, frozenset({"", *services})

    async def Check(self, request: Any, context: Context) -> Any:
        """The state now; NOT_FOUND for a service that is not there."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._now()

    async def Watch(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """The state now and whenever it changes, until the server is about to stop."""
        if request.service not in self._services:
            yield _answer(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            return
        last = None
        while True:
            if (now := self._now()) != last:
                last = now
                yield now
            if self._serving.is_draining:
                return  # an open call would hold the server up
            await asyncio.sleep(POLL_S)

    def _now(self) -> Any:
        kinds = health_pb2.HealthCheckResponse
        ready = self._serving.waiting_for is None
        return _answer(kinds.SERVING if ready else kinds.NOT_SERVING)


def _answer(status: Any) -> Any:
    return health_pb2.HealthCheckResponse(status=status)
