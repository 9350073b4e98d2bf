"""GET /health and its parts, /metrics and /version."""

from __future__ import annotations

import math

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
    serving = serving_of(request)
    waiting = serving.waiting_for
    if waiting is None:
        return JsonResponse({"status": "ready"})
    body = {"status": waiting[0], "detail": waiting[1]}
    headers = {"Retry-After": str(serving.retry_after_s)}
    return JsonResponse(body, status_code=503, headers=headers)


@router.get("/health/live")
async def live(request: Request) -> Response:
    """200 as long as this process works and may have an engine again; 503 once it never will."""
    state = serving_of(request).client.state
    if state.phase != "dead":
        return JsonResponse({"status": "live"})
    return JsonResponse({"status": "dead", "detail": state.detail}, status_code=503)


@router.get("/health/ready")
async def ready(request: Request) -> Response:
    """200 if a request sent now would be taken; 503 with the reason and Retry-After if not."""
    full_for_s = serving_of(request).client.full_for_s
    if full_for_s is None:
        return await health(request)
    headers = {"Retry-After": str(math.ceil(full_for_s))}
    body = {"status": "full", "detail": "the queue is full"}
    return JsonResponse(body, status_code=503, headers=headers)


@router.get("/health/progress")
async def progress(request: Request) -> Response:
    """503 when there is work and no step has finished for a while: the engine hangs, or is being
    replaced. 200 when work gets on, or there is none."""
    serving = serving_of(request)
    now = serving.client.progress()
    stalled = now.stalled_s >= serving.options.stall_timeout_s
    body = {
        "status": "stalled" if stalled else "working" if now.num_live else "idle",
        "requests": now.num_live,
        "steps": now.num_steps,
        "stalled_s": round(now.stalled_s, 3),
    }
    if not stalled:
        return JsonResponse(body)
    return JsonResponse(body, status_code=503, headers={"Retry-After": str(RETRY_AFTER_S)})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus text. Answers without the engine, too; then engine_up is 0.

    Never OpenMetrics, though scrapers ask for it first: prometheus_client writes its samples with
    "_" for the ":" of their names, and every dashboard would look for names that are not there.
    """
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
