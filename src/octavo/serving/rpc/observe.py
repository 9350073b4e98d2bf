"""An id and a log line for each call, as HTTP requests have them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from octavo.serving.observe import REQUEST_ID, log_request
from octavo.serving.record import RequestRecord, current_record, enter

METHOD = "GRPC"


class RecordInterceptor(grpc.aio.ServerInterceptor):
    """Makes the record of a call. A client's x-request-id is taken over if it can do no harm."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Begin a call; its handler runs in the same task."""
        given = dict(details.invocation_metadata or ()).get("x-request-id", "")
        known = isinstance(given, str) and REQUEST_ID.fullmatch(given) is not None
        enter(RequestRecord(given if known else uuid.uuid4().hex, METHOD, details.method))
        return await continuation(details)


@asynccontextmanager
async def noted(context: Any) -> AsyncIterator[None]:
    """Tells the caller its id, and writes the line when the call is over, however it ends."""
    record = current_record()
    if record is None or record.method != METHOD:
        yield
        return
    await context.send_initial_metadata((("x-request-id", record.request_id),))
    peer = context.peer()  # now: once the call is gone, asking its context is a crash
    gone = False
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit):
        gone = record.client_gone = True
        raise
    finally:
        record.over = True
        status = grpc.StatusCode.CANCELLED.name if gone else _status(context)
        log_request(record, status, peer)


def _status(context: Any) -> str:
    """The name of the call's status code."""
    code = context.code()
    return grpc.StatusCode.OK.name if code is None else getattr(code, "name", str(code))
