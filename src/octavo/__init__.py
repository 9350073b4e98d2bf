"""Octavo: a large-language-model inference framework.

    from octavo import LLM, SamplingParams

    llm = LLM("smollm2")
    print(llm.generate("Once upon a time", SamplingParams(max_tokens=40))[0].outputs[0].text)

Names are loaded when first used, so that `import octavo` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from octavo.decoding.grammar import Grammar
    from octavo.decoding.params import SamplingParams
    from octavo.decoding.pooling import Pooling
    from octavo.decoding.repetition import RepetitionDetection
    from octavo.engine import (
        LLM,
        AsyncEngine,
        CompletionOutput,
        Delta,
        EmbeddingOutput,
        Engine,
        EngineOptions,
        Logprob,
        Request,
        RequestOutput,
        ScoringOutput,
    )
    from octavo.errors import OctavoError

_MODULES = {
    "LLM": "octavo.engine",
    "AsyncEngine": "octavo.engine",
    "CompletionOutput": "octavo.engine",
    "Delta": "octavo.engine",
    "EmbeddingOutput": "octavo.engine",
    "Engine": "octavo.engine",
    "EngineOptions": "octavo.engine",
    "Grammar": "octavo.decoding.grammar",
    "Logprob": "octavo.engine",
    "OctavoError": "octavo.errors",
    "Pooling": "octavo.decoding.pooling",
    "RepetitionDetection": "octavo.decoding.repetition",
    "Request": "octavo.engine",
    "RequestOutput": "octavo.engine",
    "SamplingParams": "octavo.decoding.params",
    "ScoringOutput": "octavo.engine",
}

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "Delta",
    "EmbeddingOutput",
    "Engine",
    "EngineOptions",
    "Grammar",
    "Logprob",
    "OctavoError",
    "Pooling",
    "RepetitionDetection",
    "Request",
    "RequestOutput",
    "SamplingParams",
    "ScoringOutput",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
