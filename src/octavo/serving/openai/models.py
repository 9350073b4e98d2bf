"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from typing import Any

from octavo.serving.context import Serving


def list_models(serving: Serving) -> dict[str, Any]:
    """The list object."""
    return {"object": "list", "data": [_model(serving, name) for name in serving.all_names]}


def show_model(serving: Serving, name: str) -> dict[str, Any]:
    """One model object. Raises 404."""
    serving.check_model(name)
    return _model(serving, name)


def _model(serving: Serving, name: str) -> dict[str, Any]:
    info = serving.client.ready_info
    path = serving.adapters.get(name)
    return {
        "id": name,
        "object": "model",
        "created": serving.created,
        "owned_by": "octavo",
        "root": path or name,
        "parent": None if path is None else serving.names[0],
        "max_model_len": None if info is None else info.max_model_len,
    }
