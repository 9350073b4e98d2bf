"""From the messages of octavo.v1 to engine requests."""

from __future__ import annotations

import math
import time
from typing import Any, get_args

from octavo.decoding import SamplingParams
from octavo.decoding.grammar import Grammar, GrammarKind
from octavo.engine.types import Request
from octavo.parsing import PlainParser
from octavo.rpc import generation_pb2 as pb
from octavo.serving.body import decode_object
from octavo.serving.context import Serving, off_loop
from octavo.serving.conversation import Conversation, Tool, ToolChoice, reply_to
from octavo.serving.errors import invalid
from octavo.serving.generation import Generation, new_id
from octavo.serving.reply import Reply
from octavo.serving.rpc.origin import Origin

ROLES = frozenset({"system", "user", "assistant", "tool"})
MAX_MESSAGES = 4096
MAX_TOOLS = 128


async def reply_of(serving: Serving, request: pb.GenerateRequest, origin: Origin) -> Reply:
    """The answer, not begun yet. Raises ApiError or OctavoError naming what is wrong."""
    serving.check_model(request.model or serving.names[0])
    serving.check_ready("generate")
    shared: Any = {
        "tenant": origin.tenant,
        "deadline_s": origin.deadline_s,
        "ttft_deadline_s": _first_token_deadline_s(request),
    }
    params = sampling_params(request.sampling)
    if request.WhichOneof("input") == "conversation":
        return await reply_to(serving, _conversation(request, params, shared))
    ids, text = await _prompt(serving, request)
    engine_request = Request(
        request_id=new_id("rpc"),
        prompt_ids=ids,
        params=params,
        prompt=text,
        priority=request.priority,
        arrival_s=time.monotonic(),
        cache_salt=request.cache_salt,
        **shared,
    )
    return Reply(Generation(serving, [engine_request], "prompt"), PlainParser)


def sampling_params(sampling: pb.Sampling) -> SamplingParams:
    """Unset fields are left to SamplingParams, but for max_tokens: as many as fit."""
    given: dict[str, Any] = {"max_tokens": None}
    for field, value in sampling.ListFields():
        match field.name:
            case "stop" | "stop_token_ids":
                given[field.name] = tuple(value)
            case "logit_bias":
                given[field.name] = dict(value)
            case "grammar":
                given[field.name] = _grammar(value)
            case name:
                given[name] = value
    return SamplingParams(**given)


def _grammar(message: pb.Grammar) -> Grammar:
    kinds: dict[str, GrammarKind] = {kind: kind for kind in get_args(GrammarKind)}
    kind = kinds.get(message.kind)
    if kind is None:
        raise invalid("grammar", f"grammar.kind: expected one of {', '.join(kinds)}")
    return Grammar(kind, message.source)


async def _prompt(serving: Serving, request: pb.GenerateRequest) -> tuple[list[int], str | None]:
    match request.WhichOneof("input"):
        case "token_ids":
            ids = list(request.token_ids.ids)
            if max(ids, default=0) >= 2**31:
                message = "prompt: holds a token id that is not in the vocabulary"
                raise invalid("token_ids", message)
            return ids, None
        case "prompt":
            encode = serving.need_tokenizer("prompt").encode
            return await off_loop(len(request.prompt), encode, request.prompt), request.prompt
    raise invalid("input", "input: give a prompt, token_ids or a conversation")


def _conversation(request: pb.GenerateRequest, params: SamplingParams, shared: Any) -> Conversation:
    talk = request.conversation
    if not 0 < len(talk.messages) <= MAX_MESSAGES:
        raise invalid("messages", f"messages: expected 1 to {MAX_MESSAGES} messages")
    if len(talk.tools) > MAX_TOOLS:
        raise invalid("tools", f"tools: at most {MAX_TOOLS} are allowed")
    tools = tuple(_tool(place, tool) for place, tool in enumerate(talk.tools))
    return Conversation(
        messages=[_message(place, message) for place, message in enumerate(talk.messages)],
        params=params,
        tools=tools,
        tool_choice=_tool_choice(talk.tool_choice, tools),
        parallel_tool_calls=not talk.HasField("parallel_tool_calls") or talk.parallel_tool_calls,
        reasoning=talk.reasoning if talk.HasField("reasoning") else None,
        priority=request.priority,
        cache_salt=request.cache_salt,
        id_prefix="rpc",
        **shared,
    )


def _message(place: int, message: pb.Message) -> dict[str, Any]:
    """In OpenAI's shape, without what is empty."""
    if message.role not in ROLES:
        param = f"messages[{place}].role"
        raise invalid(param, f"{param}: expected one of {', '.join(sorted(ROLES))}")
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    shown = {
        "tool_calls": calls,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning,
    }
    kept = {key: value for key, value in shown.items() if value}
    return {"role": message.role, "content": message.content, **kept}


def _tool(place: int, tool: pb.Tool) -> Tool:
    param = f"tools[{place}]"
    if not tool.name:
        raise invalid(f"{param}.name", f"{param}.name: is missing")
    parameters: dict[str, Any] = {}
    if tool.parameters_json:
        try:
            parameters = decode_object(tool.parameters_json.encode())
        except Exception as error:
            field = f"{param}.parameters_json"
            raise invalid(field, f"{field}: expected a JSON object") from error
    return Tool(tool.name, tool.description, parameters, tool.strict)


def _tool_choice(choice: str, tools: tuple[Tool, ...]) -> ToolChoice:
    match choice:
        case "" | "auto":
            return ToolChoice("auto" if tools else "none")
        case "none":
            return ToolChoice("none")
        case "required" if tools:
            return ToolChoice("required")
        case name if any(tool.name == name for tool in tools):
            return ToolChoice("required", name)
    raise invalid("tool_choice", f"tool_choice: there is no tool {choice[:80]!r}")


def _first_token_deadline_s(request: pb.GenerateRequest) -> float | None:
    timeout_s = request.first_token_timeout_s
    if timeout_s == 0:
        return None
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise invalid("first_token_timeout_s", "first_token_timeout_s: expected seconds above 0")
    return time.monotonic() + timeout_s
