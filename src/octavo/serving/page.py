"""GET /: a page to chat and to watch the server. Hand-written files, sent as they are.

They hold nothing secret, so they need no key; what the page then asks for does. The policy lets the
browser run and fetch nothing but what this server sends: no inline script, no other host.
"""

from __future__ import annotations

import hashlib
import time
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo import __version__
from octavo.errors import EngineError
from octavo.serving.context import serving_of
from octavo.serving.errors import ApiError
from octavo.serving.health import STATS_TIMEOUT_S
from octavo.serving.json import JsonResponse

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)


def _load() -> dict[str, tuple[bytes, str]]:
    """name -> (content, entity tag) of the page's files."""
    folder = files("octavo.serving").joinpath("web")
    found = {}
    for entry in folder.iterdir():
        if entry.name.rpartition(".")[2] in MEDIA_TYPES:
            content = entry.read_bytes()
            found[entry.name] = content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return found


FILES = _load()


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """The page."""
    return _send(request, "index.html")


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """A file the page asks for."""
    return _send(request, name)


@router.get("/status")
async def status(request: Request) -> Response:
    """What the page shows of the server. time_s: when the engine was asked, for rates."""
    serving = serving_of(request)
    waiting = serving.waiting_for
    try:
        stats = await serving.client.stats(STATS_TIMEOUT_S)
    except EngineError:
        stats = None
    info = serving.client.ready_info
    engine = stats and {
        "running": stats.num_running,
        "waiting": stats.num_waiting,
        "kv_usage": stats.kv_usage,
        "blocks": stats.num_blocks,
        "block_size": stats.block_size,
        "prompt_tokens": stats.prompt_tokens,
        "generation_tokens": stats.generation_tokens,
        "prefix_cache_hit_rate": stats.prefix_cache_hit_rate,
        "num_preemptions": stats.num_preemptions,
        "last_step_s": stats.last_step_s,
    }
    shown = {
        "model": serving.names[0],
        "version": __version__,
        "phase": waiting[0] if waiting else "ready",
        "detail": waiting[1] if waiting else "",
        "time_s": time.monotonic(),
        "max_model_len": info.max_model_len if info else None,
        "engine": engine,
    }
    return JsonResponse(shown)


def _send(request: Request, name: str) -> Response:
    if name not in FILES:
        raise ApiError(404, f"Not Found: GET /page/{name}")
    content, tag = FILES[name]
    headers = {**HEADERS, "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = b"" if request.method == "HEAD" else content
    headers["Content-Length"] = str(len(content))
    return Response(body, headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])
