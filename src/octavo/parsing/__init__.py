"""From the text of an answer to its parts: reasoning, text, tool calls. Incremental, no I/O.

Names are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.parsing.answer import AnswerFormat, ToolFormat
    from octavo.parsing.dialect import Dialect, dialect_of
    from octavo.parsing.formats import (
        NONE,
        TOOL_FORMATS,
        answer_format,
        detect_reasoning,
        detect_tools,
        reasoning_parser_names,
        tool_parser_names,
    )
    from octavo.parsing.grammar import forced_calls, free_calls, shaped_answer
    from octavo.parsing.history import shaped
    from octavo.parsing.parts import (
        Answer,
        Call,
        Parser,
        Part,
        PlainParser,
        ReasoningPart,
        TextPart,
        ToolCallPart,
    )
    from octavo.parsing.stream import new_call_id
    from octavo.parsing.tools import Tool

__all__ = [
    "NONE",
    "TOOL_FORMATS",
    "Answer",
    "AnswerFormat",
    "Call",
    "Dialect",
    "Parser",
    "Part",
    "PlainParser",
    "ReasoningPart",
    "TextPart",
    "Tool",
    "ToolCallPart",
    "ToolFormat",
    "answer_format",
    "detect_reasoning",
    "detect_tools",
    "dialect_of",
    "forced_calls",
    "free_calls",
    "new_call_id",
    "reasoning_parser_names",
    "shaped",
    "shaped_answer",
    "tool_parser_names",
]

_HOMES = {
    "Answer": "parts",
    "AnswerFormat": "answer",
    "Call": "parts",
    "Dialect": "dialect",
    "NONE": "formats",
    "Parser": "parts",
    "Part": "parts",
    "PlainParser": "parts",
    "ReasoningPart": "parts",
    "TOOL_FORMATS": "formats",
    "TextPart": "parts",
    "Tool": "tools",
    "ToolCallPart": "parts",
    "ToolFormat": "answer",
    "answer_format": "formats",
    "detect_reasoning": "formats",
    "detect_tools": "formats",
    "dialect_of": "dialect",
    "forced_calls": "grammar",
    "free_calls": "grammar",
    "new_call_id": "stream",
    "reasoning_parser_names": "formats",
    "shaped": "history",
    "shaped_answer": "grammar",
    "tool_parser_names": "formats",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"octavo.parsing.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'octavo.parsing' has no attribute '{name}'")
