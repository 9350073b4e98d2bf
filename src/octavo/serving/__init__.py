"""HTTP protocols: thin translations to engine requests. Needs the "serve" extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.serving.options import ServerOptions

if TYPE_CHECKING:
    from octavo.serving.app import create_app
    from octavo.serving.server import serve

__all__ = ["ServerOptions", "create_app", "serve"]

_LAZY = {"create_app": "octavo.serving.app", "serve": "octavo.serving.server"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
