"""From a Responses body to a Conversation."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from octavo.decoding import SamplingParams
from octavo.decoding.grammar import Grammar
from octavo.errors import InvalidParameterError
from octavo.serving.context import Serving
from octavo.serving.conversation import Conversation, Tool, ToolChoice, render
from octavo.serving.errors import invalid
from octavo.serving.openai.responses.items import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    ReasoningItem,
)
from octavo.serving.openai.responses.protocol import (
    AllowedTools,
    CountRequest,
    FunctionName,
    ObjectFormat,
    PlainFormat,
    ResponseRequest,
    SchemaFormat,
)
from octavo.serving.openai.sampling import token_id

_PLAIN = (  # fields that go to SamplingParams as they are
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "skip_special_tokens"),
    *("include_stop_str_in_output", "spaces_between_special_tokens", "bad_words"),
    "allowed_token_ids",
)
NAMES = {"max_tokens": "max_output_tokens", "logprobs": "top_logprobs"}


def conversation_of(body: CountRequest, earlier: Sequence[Item]) -> Conversation:
    """The conversation of a body after `earlier` items. Raises ApiError naming what is wrong."""
    tools, choice = _tools(body)
    conversation = Conversation(
        messages=_messages(body, earlier),
        params=_params(body),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template_kwargs=_template_kwargs(body),
        reasoning=_reasoning(body),
        reasoning_param="reasoning.effort",
        fit_output=True,
        prompt_field="input",
        id_prefix="resp",
    )
    if isinstance(body, ResponseRequest):
        conversation.priority = body.priority or 0
        conversation.request_id = body.request_id
        conversation.cache_salt = body.cache_salt or ""
    return conversation


async def truncate(serving: Serving, conversation: Conversation) -> None:
    """Drop the oldest messages, but no instructions, until the prompt fits the context."""
    info = serving.client.ready_info
    context = 0 if info is None else info.max_model_len
    messages = conversation.messages
    head = [m for m in messages if m["role"] == "system"]
    turns = [m for m in messages if m["role"] != "system"]
    # Conversations are cut where a message of the user begins, so that no result lacks its call.
    cuts = [0, *(i for i, m in enumerate(turns) if m["role"] == "user" and i > 0)]
    low, high = 0, len(cuts) - 1
    while low < high:
        middle = (low + high) // 2
        conversation.messages = [*head, *turns[cuts[middle] :]]
        _, ids = await render(serving, conversation)
        low, high = (low, middle) if len(ids) < context else (middle + 1, high)
    conversation.messages = messages if low == 0 else [*head, *turns[cuts[low] :]]


def _params(body: CountRequest) -> SamplingParams:
    if not isinstance(body, ResponseRequest):
        return SamplingParams()
    given = {name: getattr(body, name) for name in _PLAIN if getattr(body, name) is not None}
    if body.logit_bias:
        given["logit_bias"] = {token_id(key): bias for key, bias in body.logit_bias.items()}
    try:
        return SamplingParams(
            max_tokens=body.max_output_tokens,
            logprobs=body.num_logprobs,
            grammar=_grammar(body),
            **given,
        )
    except InvalidParameterError as error:
        name = NAMES.get(error.param, error.param)
        raise invalid(name, str(error).replace(f"{error.param}:", f"{name}:", 1)) from None


def _grammar(body: ResponseRequest) -> Grammar | None:
    form = None if body.text is None else body.text.format
    if body.structured_outputs is not None:
        if form is not None and not isinstance(form, PlainFormat):
            message = "structured_outputs: cannot be combined with text.format"
            raise invalid("structured_outputs", message)
        return body.structured_outputs.grammar()
    if isinstance(form, SchemaFormat):
        return Grammar.from_schema(form.json_schema, param="text.format.schema")
    return Grammar.json_object(param="text.format") if isinstance(form, ObjectFormat) else None


def _reasoning(body: CountRequest) -> bool | None:
    effort = None if body.reasoning is None else body.reasoning.effort
    return None if effort is None else effort != "none"


def _template_kwargs(body: CountRequest) -> dict[str, Any]:
    kwargs = dict(body.chat_template_kwargs or {})
    if body.reasoning is not None and body.reasoning.effort not in (None, "none"):
        kwargs.setdefault("reasoning_effort", body.reasoning.effort)
    return kwargs


def _tools(body: CountRequest) -> tuple[tuple[Tool, ...], ToolChoice]:
    tools = tuple(
        Tool(tool.name, tool.description or "", tool.parameters or {}, bool(tool.strict))
        for tool in body.tools or ()
    )
    choice = body.tool_choice
    match choice:
        case None | "none" | "auto":
            return tools, ToolChoice(choice or "auto")
        case FunctionName():
            _check_tool(choice.name, tools)
            return tools, ToolChoice("required", choice.name)
        case AllowedTools():
            names = {tool.name for tool in choice.tools}
            for name in names:
                _check_tool(name, tools)
            return tuple(tool for tool in tools if tool.name in names), ToolChoice(choice.mode)
    if not tools:
        raise invalid("tool_choice", "tool_choice: 'required' needs tools")
    return tools, ToolChoice("required")


def _check_tool(name: str, tools: tuple[Tool, ...]) -> None:
    if name not in {tool.name for tool in tools}:
        raise invalid("tool_choice", f"tool_choice: got {name!r}, expected one of the tools' names")


def _messages(body: CountRequest, earlier: Sequence[Item]) -> list[dict[str, Any]]:
    """In OpenAI's chat shape."""
    messages: list[dict[str, Any]] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    fresh = [] if isinstance(body.input, str) else body.input or []
    builder = _Builder(messages)
    for item in earlier:
        builder.add(item, "previous_response_id")
    for place, item in enumerate(fresh):
        builder.add(item, f"input[{place}]")
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
    if not any(message["role"] != "system" for message in messages):
        raise invalid("input", "input: is missing or empty")
    return messages


class _Builder:
    """Appends items to messages: a thought, a text and calls in a row are one message."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._names: dict[str, str] = {}  # of functions, by the ids of their calls
        self._thought: list[str] = []

    def add(self, item: Item, param: str) -> None:
        """param: what errors call the item."""
        match item:
            case ReasoningItem():
                self._thought.append(_thought(item, param))
            case MessageItem(role="assistant"):
                self._assistant()["content"] += item.text
            case MessageItem():
                self._plain("system" if item.role == "developer" else item.role, item.text)
            case FunctionCallItem():
                self._call(item)
            case FunctionOutputItem():
                self._output(item, param)

    def _plain(self, role: str, text: str) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and last["role"] == role == "system":
            last["content"] += "\n" + text
        else:
            self._messages.append({"role": role, "content": text})

    def _assistant(self) -> dict[str, Any]:
        """The message of the model that goes on, or a new one."""
        last = self._messages[-1] if self._messages else None
        if last is None or last["role"] != "assistant" or self._thought:
            last = {"role": "assistant", "content": ""}
            self._messages.append(last)
        if any(self._thought):
            last["reasoning_content"] = "\n".join(self._thought)
        self._thought = []
        return last

    def _call(self, item: FunctionCallItem) -> None:
        self._names[item.call_id] = item.name
        function = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        self._assistant().setdefault("tool_calls", []).append(call)

    def _output(self, item: FunctionOutputItem, param: str) -> None:
        if item.call_id not in self._names:
            param = f"{param}.call_id"
            raise invalid(param, f"{param}: no function_call before has this call_id")
        more = {"tool_call_id": item.call_id, "name": self._names[item.call_id]}
        self._messages.append({"role": "tool", "content": item.text, **more})


def _thought(item: ReasoningItem, param: str) -> str:
    parts = item.content or item.summary
    if parts or not item.encrypted_content:
        return "\n".join(part.text for part in parts)
    try:
        return base64.b64decode(item.encrypted_content, validate=True).decode()
    except ValueError:
        param = f"{param}.encrypted_content"
        raise invalid(param, f"{param}: was not made by this server") from None
