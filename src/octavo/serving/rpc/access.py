"""API keys of gRPC calls: every method but health wants one, if any are set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from octavo.serving.keys import Keyring

OPEN_METHODS = frozenset(
    {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady",
    }
)


class ApiKeyInterceptor(grpc.aio.ServerInterceptor):
    """Ends calls without a key in their metadata with UNAUTHENTICATED."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Pass on what is allowed."""
        if details.method in OPEN_METHODS or tenant_of(details.invocation_metadata, self._keyring):
            return await continuation(details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


def tenant_of(metadata: Iterable[tuple[str, Any]] | None, keyring: Keyring) -> str:
    """The name of the key in a call's metadata; "" without one."""
    given = {key: value for key, value in metadata or () if isinstance(value, str)}
    scheme, _, bearer = given.get("authorization", "").partition(" ")
    candidates = [bearer if scheme.lower() == "bearer" else "", given.get("x-api-key", "")]
    found = [keyring.find(candidate.strip()) for candidate in candidates]
    return found[0] or found[1] or ""


async def _refuse(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Incorrect or missing API key.")
