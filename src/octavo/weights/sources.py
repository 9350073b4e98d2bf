"""From what a user calls a model to a path on this machine.

A name may be a local file or folder, the short name of a demo model, or a Hugging Face id. The
modules that fetch are imported only when something must be fetched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from octavo.errors import InvalidParameterError, ModelNotFoundError
from octavo.weights.cache import Progress

HUBS = ("huggingface", "modelscope")

# org/name, perhaps after a hub's name, then optionally /a/file.gguf or :pattern
_HUB_ID = re.compile(
    r"(?:(?P<hub>huggingface|modelscope):)?(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:/(?P<file>[\w./ -]+\.gguf)|:(?P<pattern>[^:]+))?",
    re.ASCII,
)


def resolve(model: str, progress: Progress | None = None) -> Path:
    """Path of a model's file or folder, fetched first if need be.

    model: a path; a demo model's short name ("smollm2"); "org/name" on the Hugging Face hub, with
    ":pattern" (":Q4_K_M", ":*q8_0.gguf") or "/file.gguf" to choose one of its GGUF files. With
    "modelscope:" before it, or with OCTAVO_HUB=modelscope, it is looked up on ModelScope.
    progress: called with (done_bytes, total_bytes, label) while fetching.
    Raises ModelNotFoundError, which lists what was tried, or DownloadError.
    """
    from octavo.weights.demo import DEMO_MODELS, fetch_demo

    path = Path(model).expanduser()
    demo = DEMO_MODELS.get(model)
    if model and path.exists() and (demo is None or _looks_like_model(path)):
        return path
    if demo is not None:
        return fetch_demo(demo, progress)
    match = _HUB_ID.fullmatch(model)
    if match is None or _is_path(model):
        raise ModelNotFoundError(_not_found(model, path, match is not None))
    return _fetcher(match["hub"] or _usual_hub())(
        match["repo"], match["file"], match["pattern"], progress
    )


def _usual_hub() -> str:
    chosen = os.environ.get("OCTAVO_HUB") or HUBS[0]
    if chosen not in HUBS:
        raise InvalidParameterError("OCTAVO_HUB", f"got {chosen!r}, expected {' or '.join(HUBS)}")
    return chosen


def _fetcher(hub: str) -> Callable[[str, str | None, str | None, Progress | None], Path]:
    if hub == "modelscope":
        from octavo.weights.modelscope import fetch_modelscope

        return fetch_modelscope
    from octavo.weights.hub import fetch_hub

    return fetch_hub


def _looks_like_model(path: Path) -> bool:
    """A folder that happens to be called like a demo model does not hide it."""
    return path.is_file() or (path / "config.json").exists() or any(path.glob("*.gguf"))


def _is_path(model: str) -> bool:
    # "models/x.gguf" is meant as a path, though it has the form of a hub id.
    return model.count("/") == 1 and model.endswith((".gguf", ".safetensors"))


def _not_found(model: str, path: Path, is_path: bool) -> str:
    import difflib

    from octavo.weights.demo import DEMO_MODELS

    near = difflib.get_close_matches(model.lower(), DEMO_MODELS, n=3, cutoff=0.5)
    near = near or [name for name in DEMO_MODELS if model and name.startswith(model.lower())]
    tried = [
        f"no file or folder '{path}'" if model else "the name is empty",
        f"not a demo model ({', '.join(DEMO_MODELS)})",
        "meant as a path, so not looked up on the hub"
        if is_path
        else "not of the form 'org/name' of a Hugging Face id",
    ]
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return f"sources: no model '{model}': {'; '.join(tried)}.{hint}"
