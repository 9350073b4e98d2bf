"""What the grammar of an answer must be, given its tools and its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.decoding import Grammar, SamplingParams, as_lark
from octavo.parsing import Dialect, Tool, forced_calls, free_calls, shaped_answer
from octavo.records import replace
from octavo.serving.errors import invalid

if TYPE_CHECKING:
    from octavo.serving.conversation import Conversation


def constrained(
    params: SamplingParams, conversation: Conversation, dialect: Dialect, prompt: str
) -> SamplingParams:
    """`params` with the grammar that makes the model call the functions it must, leaves it to
    think first, and holds strict tools to their schemas. Raises ApiError where that cannot be."""
    if conversation.tool_choice.mode == "required":
        return replace(params, grammar=_forced(conversation, dialect, prompt))
    tools = conversation.offered if dialect.calls_parsed else ()
    many = conversation.parallel_tool_calls
    if params.grammar is not None:
        body = as_lark(params.grammar)
        source = shaped_answer(dialect.format, body, tools, prompt, dialect.special, many)
        if source is None:
            return params
        return replace(params, grammar=replace(params.grammar, kind="lark", source=source))
    strict = [place for place, tool in enumerate(tools) if tool.strict]
    if not strict:
        return params
    source = free_calls(dialect.format, tools, prompt, dialect.special, many)
    if source is None:
        param = f"tools[{strict[0]}].function.strict"
        message = f"{param}: this model's tool calls have no marker that text could not hold"
        raise invalid(param, f"{message}; use tool_choice required, or leave strict off")
    return replace(params, grammar=Grammar.from_lark(source, param="tools"))


def _forced(conversation: Conversation, dialect: Dialect, prompt: str) -> Grammar:
    param = conversation.tool_choice.param
    if not dialect.calls_parsed:
        raise invalid(param, f"{param}: this server does not parse tool calls")
    tools, many = _chosen(conversation), conversation.parallel_tool_calls
    source = forced_calls(dialect.format, tools, prompt, dialect.special, many)
    return Grammar.from_lark(source, param="tools")


def _chosen(conversation: Conversation) -> tuple[Tool, ...]:
    """The tools of which one must be called."""
    name, param = conversation.tool_choice.name, conversation.tool_choice.param
    tools = tuple(tool for tool in conversation.tools if name in (None, tool.name))
    if not tools:
        what = "needs tools" if name is None else f"got {name!r}, expected the name of a tool"
        raise invalid(param, f"{param}: {what}")
    return tools
