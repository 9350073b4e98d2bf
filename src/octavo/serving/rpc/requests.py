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
from octavo.serving.terms import MAX_DEADLINE_S, MAX_TENANT, Terms, hold

ROLES = frozenset({"system", "user", "assistant", "tool"})
MAX_MESSAGES = 4096
MAX_TOOLS = 128


async def reply_of(serving: Serving, request: pb.GenerateRequest, origin: Origin) -> Reply:
    """The answer, not begun yet. Raises ApiError or OctavoError naming what is wrong."""
    serving.check_model(request.model or serving.names[0])
    serving.check_ready("generate")
    hold(_terms(serving, request, origin))
    params = sampling_params(request.sampling)
    if request.WhichOneof("input") == "conversation":
        return await reply_to(serving, _conversation(request, params))
    ids, text = await _prompt(serving, request)
    engine_request = Request(
        request_id=new_id("rpc"),
        prompt_ids=ids,
        params=params,
        prompt=text,
        priority=request.priority,
        arrival_s=time.monotonic(),
        cache_salt=request.cache_salt,
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


def _conversation(request: pb.GenerateRequest, params: SamplingParams) -> Conversation:
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
        thinking_budget=(
            talk.thinking_token_budget if talk.HasField("thinking_token_budget") else None
        ),
        thinking_budget_param="thinking_token_budget",
        priority=request.priority,
        cache_salt=request.cache_salt,
        id_prefix="rpc",
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


def _terms(serving: Serving, request: pb.GenerateRequest, origin: Origin) -> Terms:
    """Those of the call and those of its request, as take_terms has them over HTTP."""
    several_keys = len(serving.keyring.weights) > 1
    user = "" if several_keys else request.user[:MAX_TENANT]
    own = _moment("timeout_s", request.timeout_s)
    deadlines = [moment for moment in (own, origin.deadline_s) if moment is not None]
    return Terms(
        user or origin.tenant,
        min(deadlines, default=None),
        _moment("first_token_timeout_s", request.first_token_timeout_s),
        request.lora,
    )


def _moment(name: str, timeout_s: float) -> float | None:
    if timeout_s == 0:
        return None
    if not (math.isfinite(timeout_s) and 0 < timeout_s <= MAX_DEADLINE_S):
        raise invalid(name, f"{name}: expected seconds, more than 0, at most 1,000,000")
    return time.monotonic() + timeout_s
