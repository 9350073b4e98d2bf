"""From the text of an answer to its parts: reasoning, text, tool calls. Incremental, no I/O."""

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
