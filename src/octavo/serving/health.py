"""GET /health, /metrics and /version."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from octavo import __version__
from octavo.errors import EngineError
from octavo.serving.context import serving_of
from octavo.serving.errors import RETRY_AFTER_S
from octavo.serving.json import JsonResponse

STATS_TIMEOUT_S = 2.0  # a step takes far less

router = APIRouter(tags=["Operations"])


@router.get("/health")
async def health(request: Request) -> Response:
    """200 when requests are taken; 503 with the reason while they are not."""
    waiting = serving_of(request).waiting_for
    if waiting is None:
        return JsonResponse({"status": "ready"})
    body = {"status": waiting[0], "detail": waiting[1]}
    return JsonResponse(body, status_code=503, headers={"Retry-After": str(RETRY_AFTER_S)})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus text. Answers even when the engine does not; then engine_up is 0."""
    serving = serving_of(request)
    try:
        stats = await serving.client.stats(STATS_TIMEOUT_S)
    except EngineError:
        stats = None
    up = stats is not None and serving.waiting_for is None
    serving.metrics.update(stats, up, serving.client.num_restarts)
    return Response(generate_latest(serving.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/version")
async def version() -> Response:
    """The server's version."""
    return JsonResponse({"version": __version__})
