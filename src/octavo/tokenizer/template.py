"""Chat templates: a conversation to prompt text, with Jinja2 as `transformers` sets it up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from octavo.errors import TemplateError

if TYPE_CHECKING:
    from octavo.tokenizer.sandbox import CompiledTemplate

DEFAULT_NAME = "default"
TOOL_NAME = "tool_use"
MAX_CACHED_TEMPLATES = 16


class ChatTemplates:
    """A model's templates by name, compiled once, on first use.

    named_tokens: what templates may write by name ("bos_token", ...).
    """

    def __init__(self, sources: Mapping[str, str], named_tokens: Mapping[str, str]) -> None:
        self._sources, self._named_tokens = dict(sources), dict(named_tokens)
        self._compiled: dict[str, CompiledTemplate] = {}

    @property
    def default(self) -> str | None:
        """Source of the template used without tools, or None."""
        return self._sources.get(DEFAULT_NAME)

    def source(self, with_tools: bool) -> str | None:
        """Source of the template used with (or without) tools, or None."""
        return self._sources.get(TOOL_NAME, self.default) if with_tools else self.default

    def prepare(self) -> None:
        """Compile the model's own template ahead of its first use, if there is one that compiles;
        a bad one is told when it is rendered."""
        if self.default is not None:
            with suppress(TemplateError):
                self._compile(self.default)

    def render(self, chosen: str | None, *, tools: Any = None, **variables: Any) -> str:
        """Render the chosen template (a name or Jinja source), or the model's own.

        Raises TemplateError.
        """
        template = self._compile(self._select(chosen, bool(tools)))
        values = {"documents": None, **self._named_tokens, "tools": tools or None, **variables}
        return template.render(values)

    def _select(self, chosen: str | None, has_tools: bool) -> str:
        if chosen is not None:
            return self._sources.get(chosen, chosen)
        if has_tools and TOOL_NAME in self._sources:
            return self._sources[TOOL_NAME]
        if self.default is None:
            raise TemplateError(
                "chat template: the model has none; pass chat_template, or use plain prompts"
            )
        return self.default

    def _compile(self, source: str) -> CompiledTemplate:
        from octavo.tokenizer.sandbox import compile_template  # jinja2 only when it is needed

        if source not in self._compiled:
            if len(self._compiled) >= MAX_CACHED_TEMPLATES:
                self._compiled.clear()
            self._compiled[source] = compile_template(source)
        return self._compiled[source]
