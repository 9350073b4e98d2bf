"""Requests to steps to tokens: `Engine` owns the loop, `AsyncEngine` and `LLM` are ways to use it.

Names are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.collect import Collector
    from octavo.engine.embedding import EmbeddingOutput, ScoringOutput
    from octavo.engine.engine import Engine
    from octavo.engine.llm import LLM
    from octavo.engine.options import EngineOptions
    from octavo.engine.planning import EnginePlan, plan_engine
    from octavo.engine.stats import EngineStats
    from octavo.engine.types import (
        CompletionOutput,
        Delta,
        FinishReason,
        Logprob,
        Request,
        RequestMetrics,
        RequestOutput,
        TokenLogprobs,
    )

__all__ = [
    "LLM",
    "AsyncEngine",
    "Collector",
    "CompletionOutput",
    "Delta",
    "EmbeddingOutput",
    "Engine",
    "EngineOptions",
    "EnginePlan",
    "EngineStats",
    "FinishReason",
    "Logprob",
    "Request",
    "RequestMetrics",
    "RequestOutput",
    "ScoringOutput",
    "TokenLogprobs",
    "plan_engine",
]

_HOMES = {
    "LLM": "llm",
    "AsyncEngine": "async_engine",
    "Collector": "collect",
    "EmbeddingOutput": "embedding",
    "Engine": "engine",
    "EngineOptions": "options",
    "EnginePlan": "planning",
    "EngineStats": "stats",
    "ScoringOutput": "embedding",
    "plan_engine": "planning",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'octavo.engine' has no attribute {name!r}")
    value = getattr(import_module(f"octavo.engine.{_HOMES.get(name, 'types')}"), name)
    globals()[name] = value
    return value
