"""GET /health, /metrics and /version."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
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
    """Prometheus or OpenMetrics text. Answers without the engine, too; then engine_up is 0."""
    serving = serving_of(request)
    try:
        stats = await serving.client.stats(STATS_TIMEOUT_S)
    except EngineError:
        stats = None
    up = stats is not None and serving.waiting_for is None
    serving.metrics.update(stats, up, serving.client.num_restarts)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(serving.metrics.registry), headers={"Content-Type": content_type})


@router.get("/version")
async def version() -> Response:
    """The server's version."""
    return JsonResponse({"version": __version__})
