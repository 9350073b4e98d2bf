"""From an Anthropic body to a Conversation."""

from __future__ import annotations

import json
from typing import Any

from octavo.decoding import SamplingParams
from octavo.decoding.grammar import Grammar
from octavo.errors import InvalidParameterError
from octavo.serving.anthropic.protocol import (
    AssistantMessage,
    CountRequest,
    MessageRequest,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    plain_text,
)
from octavo.serving.conversation import Conversation, Tool, ToolChoice
from octavo.serving.errors import invalid

FIELDS = {"stop": "stop_sequences"}  # our name: the protocol's


def conversation_of(body: CountRequest) -> Conversation:
    """The conversation of a body. Raises ApiError or OctavoError naming what is wrong."""
    goes_on = isinstance(body.messages[-1], AssistantMessage)
    conversation = Conversation(
        messages=_messages(body),
        params=_params(body),
        tools=_tools(body),
        tool_choice=_tool_choice(body),
        parallel_tool_calls=not (body.tool_choice and body.tool_choice.disable_parallel_tool_use),
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
        template_kwargs=_template_kwargs(body),
        reasoning=_reasoning(body),
        reasoning_param="thinking",
        thinking_budget=_budget(body),
        fit_output=True,
        id_prefix="msg",
        call_id_prefix="toolu_",
    )
    if isinstance(body, MessageRequest):
        conversation.cache_salt = body.cache_salt or ""
        conversation.priority = body.priority or 0
    return conversation


def _params(body: CountRequest) -> SamplingParams:
    if not isinstance(body, MessageRequest):
        return SamplingParams()
    given: dict[str, Any] = {
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "stop": tuple(body.stop_sequences or ()),
        "grammar": _grammar(body),
    }
    try:
        return SamplingParams(
            max_tokens=body.max_tokens, **{k: v for k, v in given.items() if v is not None}
        )
    except InvalidParameterError as error:
        name = FIELDS.get(error.param, error.param)
        raise invalid(name, str(error).replace(f"{error.param}:", f"{name}:", 1)) from None


def _grammar(body: CountRequest) -> Grammar | None:
    if body.output_config is None or body.output_config.format is None:
        return None
    schema = body.output_config.format.json_schema
    return Grammar.from_schema(schema, param="output_config.format.schema")


def _reasoning(body: CountRequest) -> bool | None:
    thinking = body.thinking
    if thinking is None or thinking.type == "adaptive":
        return None
    if thinking.type == "enabled":
        _check_budget(body, thinking.budget_tokens)
    return thinking.type == "enabled"


def _budget(body: CountRequest) -> int | None:
    enabled = body.thinking is not None and body.thinking.type == "enabled"
    return body.thinking.budget_tokens if body.thinking is not None and enabled else None


def _check_budget(body: CountRequest, budget: int | None) -> None:
    name = "thinking.budget_tokens"
    if budget is None:
        raise invalid(name, f"{name}: is missing")
    if isinstance(body, MessageRequest) and budget >= body.max_tokens:
        raise invalid(name, f"{name}: got {budget}, expected less than max_tokens")


def _template_kwargs(body: CountRequest) -> dict[str, Any]:
    kwargs = dict(body.chat_template_kwargs or {})
    if body.output_config is not None and body.output_config.effort is not None:
        kwargs.setdefault("reasoning_effort", body.output_config.effort)
    return kwargs


def _tools(body: CountRequest) -> tuple[Tool, ...]:
    return tuple(
        Tool(tool.name, tool.description or "", tool.input_schema, bool(tool.strict))
        for tool in body.tools or ()
    )


def _tool_choice(body: CountRequest) -> ToolChoice:
    choice = body.tool_choice
    if choice is None or choice.type == "auto":
        return ToolChoice("auto")
    if choice.type == "none":
        return ToolChoice("none")
    names = [tool.name for tool in body.tools or ()]
    if not names:
        raise invalid("tool_choice", f"tool_choice: {choice.type!r} needs tools")
    if choice.type == "any":
        return ToolChoice("required")
    if choice.name not in names:
        message = f"tool_choice.name: got {choice.name!r}, expected one of the tools' names"
        raise invalid("tool_choice.name", message)
    return ToolChoice("required", choice.name)


def _messages(body: CountRequest) -> list[dict[str, Any]]:
    """In OpenAI's shape. Neighbours of one role become one message, as Anthropic joins them."""
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": plain_text(body.system)})
    names: dict[str, str] = {}  # of tools, by the ids of their calls
    for place, message in enumerate(body.messages):
        match message:
            case UserMessage():
                more = _user(message, place, names)
            case AssistantMessage():
                more = [_assistant(message, names)]
            case _:
                more = [{"role": "system", "content": plain_text(message.content)}]
        for item in more:
            _append(messages, item)
    return messages


def _append(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    last = messages[-1] if messages else None
    joins = last is not None and last["role"] == item["role"] and item["role"] != "tool"
    if last is not None and joins and not (set(last) | set(item)) - {"role", "content"}:
        last["content"] += "\n" + item["content"]
    else:
        messages.append(item)


def _user(message: UserMessage, place: int, names: dict[str, str]) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    found: list[dict[str, Any]] = []
    texts: list[str] = []
    for number, block in enumerate(message.content):
        if not isinstance(block, ToolResultBlock):
            texts.append(block.text)
            continue
        if block.tool_use_id not in names:
            param = f"messages[{place}].content[{number}].tool_use_id"
            raise invalid(param, f"{param}: no tool_use block before has this id")
        name = names[block.tool_use_id]
        found.append(
            {
                "role": "tool",
                "content": block.text,
                "tool_call_id": block.tool_use_id,
                "name": name,
            }
        )
    if texts or not found:
        found.append({"role": "user", "content": "\n".join(texts)})
    return found


def _assistant(message: AssistantMessage, names: dict[str, str]) -> dict[str, Any]:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    item: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    thoughts = [b.thinking for b in message.content if isinstance(b, ThinkingBlock) and b.thinking]
    if thoughts:
        item["reasoning_content"] = "\n".join(thoughts)
    calls = [block for block in message.content if isinstance(block, ToolUseBlock)]
    names.update((call.id, call.name) for call in calls)
    if calls:
        item["tool_calls"] = [_call(call) for call in calls]
    return item


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    function = {"name": block.name, "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function}
