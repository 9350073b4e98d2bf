"""Models as Anthropic's clients expect them under /v1/models."""

from __future__ import annotations

import datetime

import msgspec

from octavo.serving.context import Serving


class ModelInfo(msgspec.Struct, tag="model"):
    """One model."""

    id: str
    display_name: str
    created_at: str
    max_input_tokens: int | None
    max_tokens: int | None
    capabilities: None = None
    lifecycle: str = "active"


class ModelList(msgspec.Struct):
    """All models; there are never more than fit in one answer."""

    data: list[ModelInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


def list_models(serving: Serving) -> ModelList:
    """The list object."""
    names = serving.all_names
    return ModelList([_model(serving, name) for name in names], names[0], names[-1])


def show_model(serving: Serving, name: str) -> ModelInfo:
    """One model object. Raises 404."""
    serving.check_model(name)
    return _model(serving, name)


def _model(serving: Serving, name: str) -> ModelInfo:
    created = datetime.datetime.fromtimestamp(serving.created, datetime.UTC)
    info = serving.client.ready_info
    length = None if info is None else info.max_model_len
    return ModelInfo(name, name, created.isoformat().replace("+00:00", "Z"), length, length)
