"""From the text of an answer to its parts: reasoning, text, tool calls. Incremental, no I/O."""

from octavo.parsing.parts import Parser, Part, PlainParser, ReasoningPart, TextPart, ToolCallPart

__all__ = ["Parser", "Part", "PlainParser", "ReasoningPart", "TextPart", "ToolCallPart"]
