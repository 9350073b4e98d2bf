"""From an Ollama body to a Reply."""

from __future__ import annotations

import json
import time
from typing import Any

from octavo.decoding import SamplingParams
from octavo.engine.types import Request
from octavo.parsing import PlainParser
from octavo.records import replace
from octavo.serving.context import Serving, off_loop
from octavo.serving.conversation import Conversation, Tool, reply_to
from octavo.serving.errors import invalid
from octavo.serving.generation import Generation, new_id
from octavo.serving.ollama.options import sampling_params
from octavo.serving.ollama.protocol import ChatRequest, GenerateRequest, Message, Think
from octavo.serving.prompts import infill
from octavo.serving.reply import Reply


async def chat_reply(serving: Serving, body: ChatRequest) -> Reply:
    """The answer to a chat, not begun yet."""
    conversation = Conversation(
        messages=_messages(body.messages or []),
        params=_params(serving, body),
        tools=tuple(_tool(tool.function) for tool in body.tools or ()),
    )
    _think(conversation, body.think)
    conversation.fit_output = True
    return await reply_to(serving, conversation)


async def generate_reply(serving: Serving, body: GenerateRequest) -> Reply:
    """The answer to a prompt, not begun yet."""
    if body.raw or body.suffix:
        return await _raw_reply(serving, body)
    messages = [{"role": "system", "content": body.system}] if body.system else []
    messages.append({"role": "user", "content": body.prompt or ""})
    conversation = Conversation(messages=messages, params=_params(serving, body))
    conversation.prompt_field = "prompt"
    conversation.fit_output = True
    _think(conversation, body.think)
    return await reply_to(serving, conversation)


async def _raw_reply(serving: Serving, body: GenerateRequest) -> Reply:
    """Goes on from the prompt, or fills the gap between prompt and suffix."""
    for name in ("system", "think"):
        if getattr(body, name):
            raise invalid(name, f"{name}: is not supported together with raw or suffix")
    prompt, suffix = body.prompt or "", body.suffix or ""
    tokenizer = serving.need_tokenizer("prompt")
    params, stops = _params(serving, body), list[int]()
    if suffix:
        length = len(prompt) + len(suffix)
        ids, stops = await off_loop(length, infill, tokenizer, prompt, suffix)
    else:
        ids = await off_loop(len(prompt), tokenizer.encode, prompt)
    if params.max_tokens is not None:
        room = max(1, _context(serving) - len(ids))
        params = replace(params, max_tokens=min(params.max_tokens, room))
    request = Request(
        request_id=new_id("gen"),
        prompt_ids=ids,
        params=replace(params, stop_token_ids=tuple(stops)),
        prompt=prompt,
        arrival_s=time.monotonic(),
    )
    return Reply(Generation(serving, [request], "prompt"), PlainParser)


def _params(serving: Serving, body: ChatRequest | GenerateRequest) -> SamplingParams:
    return sampling_params(body.options, body.format, body.num_logprobs, _context(serving))


def _context(serving: Serving) -> int:
    info = serving.client.ready_info
    return 0 if info is None else info.max_model_len


def _think(conversation: Conversation, think: Think | None) -> None:
    if think is not None:
        conversation.reasoning, conversation.reasoning_param = bool(think), "think"
    if isinstance(think, str):
        conversation.template_kwargs["reasoning_effort"] = think


def _tool(function: Any) -> Tool:
    parameters = function.parameters or {}
    return Tool(function.name, function.description or "", parameters, bool(function.strict))


def _messages(messages: list[Message]) -> list[dict[str, Any]]:
    """In OpenAI's shape. Ollama's calls have no ids: results belong to the latest call of their
    tool, or to the calls in order."""
    plain: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []  # (id, name) of calls without a result
    for place, message in enumerate(messages):
        item: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            item["reasoning_content"] = message.thinking
        if message.tool_calls:
            item["tool_calls"] = _calls(message, place)
            waiting = [(call["id"], call["function"]["name"]) for call in item["tool_calls"]]
        if message.role == "tool":
            item |= _answered(message, waiting)
        plain.append(item)
    return plain


def _calls(message: Message, place: int) -> list[dict[str, Any]]:
    calls = []
    for number, call in enumerate(message.tool_calls or ()):
        arguments = call.function.arguments
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": call.function.name, "arguments": text}
        call_id = call.id or f"call_{place}_{number}"
        calls.append({"id": call_id, "type": "function", "function": function})
    return calls


def _answered(message: Message, waiting: list[tuple[str, str]]) -> dict[str, Any]:
    fits = [
        call
        for call in waiting
        if message.tool_call_id in (None, call[0]) and message.tool_name in (None, call[1])
    ]
    if not fits:
        name = {"name": message.tool_name} if message.tool_name else {}
        return {"tool_call_id": message.tool_call_id or "call", **name}
    waiting.remove(fits[0])
    return {"tool_call_id": fits[0][0], "name": fits[0][1]}
