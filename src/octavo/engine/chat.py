"""Chats in process: from messages and tools to a prompt, and from the answer to its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.decoding.params import SamplingParams
from octavo.engine.types import RequestOutput
from octavo.parsing import Dialect, Tool, dialect_of, shaped
from octavo.records import replace
from octavo.tokenizer.base import Tokenizer


@dataclass(frozen=True)
class Chats:
    """How one model talks."""

    tokenizer: Tokenizer
    dialect: Dialect

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Chats:
        """As its chat template says."""
        return cls(tokenizer, dialect_of(tokenizer))

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        **options: Any,
    ) -> str:
        """The prompt. options go to `Tokenizer.render_chat`. Raises TemplateError."""
        shown: Sequence[Mapping[str, Any]] = messages
        if tools or any("tool_calls" in m or m.get("role") == "tool" for m in messages):
            shown = shaped([dict(m) for m in messages], tools_of(tools), self.dialect)
        return self.tokenizer.render_chat(shown, tools=tools or None, **options)

    def params(self, params: SamplingParams, has_tools: bool) -> SamplingParams:
        """With the control tokens shown that tell the answer's parts."""
        return replace(params, shown_special_ids=self.dialect.shown_ids(has_tools))

    def read(self, output: RequestOutput, tools: Sequence[Mapping[str, Any]]) -> None:
        """Put each sample's parts into its `message`."""
        for sample in output.outputs:
            parsed = self.dialect.format.parse(sample.text, output.prompt or "", tools_of(tools))
            sample.message = parsed


def tools_of(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Functions in OpenAI's shape; others only the template understands."""
    functions = [tool.get("function", tool) for tool in tools]
    return tuple(
        Tool(f["name"], f.get("description") or "", f.get("parameters") or {})
        for f in functions
        if isinstance(f, Mapping) and isinstance(f.get("name"), str)
    )
