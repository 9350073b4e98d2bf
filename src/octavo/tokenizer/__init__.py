"""Text to ids and back, and conversations to prompts. Heavy imports wait until they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.tokenizer.base import Encoder, Tokenizer

if TYPE_CHECKING:
    from octavo.weights.tensor import Checkpoint

__all__ = ["Encoder", "Tokenizer", "load_tokenizer"]


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The checkpoint's tokenizer, or None if it has none (then ids go in and out).

    Raises FormatError for malformed and UnsupportedError for unknown tokenizer data.
    """
    if checkpoint.format == "gguf":
        from octavo.tokenizer.gguf import from_gguf

        return from_gguf(checkpoint.metadata)
    from octavo.tokenizer.huggingface import from_folder

    return from_folder(checkpoint.path, checkpoint.extras.get("generation_config", {}))
