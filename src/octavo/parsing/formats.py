"""The formats by name, and which one a chat template asks for."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.parsing.answer import TOOL_CALL, AnswerFormat, ToolFormat
from octavo.parsing.harmony_library import harmony_library
from octavo.parsing.json_calls import JsonCalls
from octavo.parsing.named_calls import NamedCalls
from octavo.parsing.reasoning import ReasoningFormat
from octavo.parsing.xml_calls import XmlCalls
from octavo.records import replace
from octavo.tokenizer import Tokenizer

_log = logging.getLogger("octavo.parsing")

HARMONY = "harmony"
NONE = "none"

TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "hermes": TOOL_CALL,
    "llama3": JsonCalls("<|python_tag|>", bare=True, unmarked=True, argument_key="parameters"),
    "mistral": JsonCalls("[TOOL_CALLS]", bare=True, is_list=True),
    "mistral_args": NamedCalls("[TOOL_CALLS]", "[ARGS]"),
    "mistral_id": NamedCalls("[TOOL_CALLS]", "[ARGS]", call_id="[CALL_ID]"),
    "deepseek_v3": NamedCalls(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        kind="function",
        fence=("```json", "```"),
    ),
    "deepseek_v31": NamedCalls(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "deepseek_v32": XmlCalls(
        section=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        call=('<｜DSML｜invoke name="', '">', "</｜DSML｜invoke>"),
        key=('<｜DSML｜parameter name="', '">'),
        value=("", "</｜DSML｜parameter>"),
        lines=False,
        typed=True,
    ),
    "deepseek_v4": XmlCalls(
        section=("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        call=('<｜DSML｜invoke name="', '">', "</｜DSML｜invoke>"),
        key=('<｜DSML｜parameter name="', '">'),
        value=("", "</｜DSML｜parameter>"),
        lines=False,
        typed=True,
    ),
    "kimi_k2": NamedCalls(
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        prefix="functions.",
        numbered=True,
    ),
    "qwen3_coder": XmlCalls(
        section=("<tool_call>", "</tool_call>"),
        call=("<function=", ">", "</function>"),
        key=("<parameter=", ">"),
        value=("", "</parameter>"),
        section_each=True,
    ),
    "seed_oss": XmlCalls(
        section=("<seed:tool_call>", "</seed:tool_call>"),
        call=("<function=", ">", "</function>"),
        key=("<parameter=", ">"),
        value=("", "</parameter>"),
        lines=False,
        section_each=True,
    ),
    "glm4": XmlCalls(
        section=("<tool_call>", ""),
        call=("", "", "</tool_call>"),
        key=("<arg_key>", "</arg_key>"),
        value=("<arg_value>", "</arg_value>"),
        lines=False,
        section_each=True,
    ),
    "minimax_m2": XmlCalls(
        section=("<minimax:tool_call>", "</minimax:tool_call>"),
        call=('<invoke name="', '">', "</invoke>"),
        key=('<parameter name="', '">'),
        value=("", "</parameter>"),
        lines=False,
    ),
    "granite": JsonCalls("<|tool_call|>", bare=True, is_list=True),
    "cohere": JsonCalls(
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        is_list=True,
        name_key="tool_name",
        argument_key="parameters",
    ),
    "nemotron": JsonCalls("<TOOLCALL>", "</TOOLCALL>", is_list=True),
    "apriel": JsonCalls("<tool_calls>", "</tool_calls>", is_list=True),
    "firefunction": JsonCalls("functools", is_list=True),
    "functionary": NamedCalls("<function=", ">", "</function>"),
}
"""How models call functions. Each model knows one of these."""

REASONING_FORMATS: Mapping[str, ReasoningFormat] = {
    "think": ReasoningFormat("<think>", "</think>"),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]"),
    "granite": ReasoningFormat("<think>", "</think>", ("<response>", "</response>")),
    "seed_oss": ReasoningFormat("<seed:think>", "</seed:think>"),
    "gemma4": ReasoningFormat("<|channel>thought", "<channel|>"),
    "cohere": ReasoningFormat(
        "<|START_THINKING|>", "<|END_THINKING|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
    ),
}
"""How models mark their thinking."""

# What a template must hold, the more particular first.
_TOOL_HINTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("deepseek_v32", ("DSML", "function_calls")),
    ("deepseek_v4", ("DSML", "tool_calls")),
    ("minimax_m2", ("<minimax:tool_call>", "<invoke name=")),
    ("seed_oss", ("<seed:tool_call>", "<function=")),
    ("glm4", ("<tool_call>", "<arg_key>")),
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("kimi_k2", ("<|tool_call_begin|>", "<|tool_call_argument_begin|>")),
    ("deepseek_v3", ("<｜tool▁call▁begin｜>", "```json")),
    ("deepseek_v31", ("<｜tool▁call▁begin｜>",)),
    ("mistral_id", ("[TOOL_CALLS]", "[CALL_ID]")),
    ("mistral_args", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("functionary", ("<function=", "</function>")),
    ("cohere", ("<|START_ACTION|>",)),
    ("granite", ("<|tool_call|>",)),
    ("nemotron", ("<TOOLCALL>",)),
    ("apriel", ("<tool_calls>[", "arguments")),
    ("hermes", ("<tool_call>", "arguments")),
    ("apriel", ("<tool_calls>", "arguments")),
    ("firefunction", ("functools",)),
    ("llama3", ("<|python_tag|>",)),
    ("llama3", ("<|start_header_id|>", '"parameters": ')),
)
_REASONING_HINTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mistral", ("[THINK]",)),
    ("seed_oss", ("seed:think",)),
    ("cohere", ("<|START_THINKING|>",)),
    ("gemma4", ("<|channel>thought",)),
    ("granite", ("<think></think>", "<response></response>")),
    ("think", ("</think>",)),
)


def tool_parser_names() -> list[str]:
    """What may be asked for by name."""
    return [NONE, HARMONY, *TOOL_FORMATS]


def reasoning_parser_names() -> list[str]:
    """What may be asked for by name."""
    return [NONE, HARMONY, *REASONING_FORMATS]


def detect_tools(template: str) -> str:
    """The name of the tool format a template is written for; "none" if there is no sign of one."""
    if _is_harmony(template):
        return HARMONY
    return _first(template, _TOOL_HINTS)


def detect_reasoning(template: str) -> str:
    """The name of its reasoning format, or "none"."""
    if _is_harmony(template):
        return HARMONY
    return _first(template, _REASONING_HINTS)


def answer_format(tools: str, reasoning: str) -> AnswerFormat:
    """The format of these names. Raises KeyError for an unknown one."""
    if HARMONY in (tools, reasoning):
        return AnswerFormat(harmony=True)
    return AnswerFormat(
        tools=None if tools == NONE else TOOL_FORMATS[tools],
        reasoning=None if reasoning == NONE else REASONING_FORMATS[reasoning],
    )


def model_format(tools: str, reasoning: str, tokenizer: Tokenizer) -> AnswerFormat:
    """The format of these names, with the best reader there is for this model; the log says which
    reads harmony. Raises KeyError for an unknown name."""
    format = answer_format(tools, reasoning)
    if not format.harmony:
        return format
    try:
        library = harmony_library(tokenizer)
    except UnsupportedError as reason:
        _log.info("harmony answers are read by Octavo's own reader: %s", reason)
        return format
    _log.info("harmony answers are read by openai-harmony")
    return replace(format, library=library)


def _is_harmony(template: str) -> bool:
    return "<|channel|>" in template and "<|message|>" in template


def _first(template: str, hints: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    found = (name for name, signs in hints if all(sign in template for sign in signs))
    return next(found, NONE)
