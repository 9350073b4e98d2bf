"""The load that is asked about."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import InvalidParameterError

DEFAULT_CONTEXT = 4096
DEFAULT_OUTPUT = 256


@dataclass(frozen=True)
class Load:
    """So many requests at once, each of `context` tokens, of which the last `output` are made; none
    by a model that only reads."""

    concurrency: int
    context: int
    output: int

    @classmethod
    def of(
        cls,
        model_context: int,
        concurrency: int,
        context: int | None,
        output: int | None,
        reads_only: bool = False,
    ) -> Load:
        """With defaults for what is None. Raises InvalidParameterError for what cannot be."""
        length = min(DEFAULT_CONTEXT, model_context) if context is None else context
        made = min(DEFAULT_OUTPUT, length // 2) if output is None else output
        if not 2 <= length <= model_context:
            limits = f"expected 2 to {model_context:,}, the model's context"
            raise InvalidParameterError("context", f"got {length:,} tokens, {limits}")
        if reads_only:
            if output:
                expected = "expected 0: the model reads text and writes none"
                raise InvalidParameterError("output", f"got {output:,} tokens, {expected}")
            return cls(concurrency, length, 0)
        if not 1 <= made < length:
            limits = f"expected 1 to {length - 1:,}: the prompt has a token at least"
            raise InvalidParameterError("output", f"got {made:,} tokens, {limits}")
        return cls(concurrency, length, made)

    @property
    def prompt(self) -> int:
        return self.context - self.output

    @property
    def middle(self) -> int:
        """Tokens of a request when half of its answer is made."""
        return self.prompt + (self.output + 1) // 2
