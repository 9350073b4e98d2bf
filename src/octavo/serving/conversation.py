"""A chat request of any protocol, in one shape, and the engine request it becomes.

The handlers of each protocol (OpenAI chat and responses, Anthropic, Ollama, gRPC) turn their
bodies into a Conversation and the ReplyDeltas of its Reply into their own events.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from octavo.decoding import SamplingParams
from octavo.engine.types import Request
from octavo.errors import TemplateError
from octavo.parsing import Tool
from octavo.records import replace
from octavo.serving.constraint import constrained
from octavo.serving.context import Serving, off_loop
from octavo.serving.errors import translate
from octavo.serving.generation import Generation, new_id
from octavo.serving.prompts import RENDERED, PromptOptions
from octavo.serving.rendering import check_template, rendered_prompt
from octavo.serving.reply import Reply
from octavo.serving.thinking import bounded, tracker_for

__all__ = ["Conversation", "Tool", "ToolChoice", "render", "reply_to"]


@dataclass(frozen=True)
class ToolChoice:
    """mode: "none" never, "auto" as the model likes, "required" at least one call; name: that
    function and no other (mode "required"). param: the request field it came from."""

    mode: Literal["none", "auto", "required"] = "auto"
    name: str | None = None
    param: str = "tool_choice"


@dataclass
class Conversation:
    """messages: in OpenAI's shape, content as one string; tool calls of assistants and results of
    tools likewise. params.grammar: what the answer's text must match (response_format).
    continue_final_message: the last message is the beginning of the answer. prompt_field: what the
    protocol calls the messages; errors name it. id_prefix: "chatcmpl" gives "chatcmpl-...".
    reasoning: False asks a model that can think not to, True to think, None leaves it to the model.
    prompt_options: how the rendered text becomes ids. request_id: chosen by the client.
    chat_template: used instead of the model's. call_id_prefix: what the ids of calls begin with.
    reasoning_param: the request field that asks for thinking; where the model cannot, an error
    names it. thinking_budget: tokens after which thinking is ended; thinking_budget_param: the
    request field it came from, "" if it may be ignored where the model's markers are no tokens.
    fit_output: ask for no more tokens than the context still holds, instead of refusing.
    """

    messages: list[dict[str, Any]]
    params: SamplingParams
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    reasoning: bool | None = None
    reasoning_param: str = ""
    thinking_budget: int | None = None
    thinking_budget_param: str = ""
    priority: int = 0
    cache_salt: str = ""
    fit_output: bool = False
    prompt_options: PromptOptions = RENDERED
    request_id: str | None = None
    prompt_field: str = "messages"
    id_prefix: str = "chatcmpl"
    call_id_prefix: str = "call_"

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools the model may call."""
        return () if self.tool_choice.mode == "none" else self.tools


async def reply_to(serving: Serving, conversation: Conversation) -> Reply:
    """The answer, not begun yet. Raises ApiError or OctavoError naming what is wrong."""
    rendered, ids = await render(serving, conversation)
    dialect = serving.need_dialect(conversation.prompt_field)
    params = _fitting(serving, conversation, len(ids))
    params = constrained(params, conversation, dialect, rendered)
    tokenizer = serving.need_tokenizer(conversation.prompt_field)
    params = bounded(params, conversation, dialect, tokenizer, rendered)
    tools = conversation.offered if dialect.calls_parsed else ()
    request = Request(
        request_id=new_id(conversation.id_prefix, conversation.request_id),
        prompt_ids=ids,
        params=replace(params, shown_special_ids=dialect.shown_ids(bool(tools))),
        prompt=rendered,
        priority=conversation.priority,
        arrival_s=time.monotonic(),
        cache_salt=conversation.cache_salt,
    )
    generation = Generation(serving, [request], conversation.prompt_field)
    new_call_id = partial(_call_id, conversation.call_id_prefix)
    return Reply(
        generation,
        lambda: dialect.format.parser(rendered, tools, new_call_id),
        new_tracker=lambda: tracker_for(dialect, tokenizer, rendered),
        single_call=not conversation.parallel_tool_calls,
    )


def _call_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex[:24]}"


def _fitting(serving: Serving, conversation: Conversation, prompt_length: int) -> SamplingParams:
    params, info = conversation.params, serving.client.ready_info
    if not conversation.fit_output or params.max_tokens is None or info is None:
        return params
    most = min(params.max_tokens, max(1, info.max_model_len - prompt_length))
    return replace(params, max_tokens=most, min_tokens=min(params.min_tokens, most))


async def render(serving: Serving, conversation: Conversation) -> tuple[str, list[int]]:
    """The prompt as text and as token ids."""
    tokenizer = serving.need_tokenizer(conversation.prompt_field)
    dialect = serving.need_dialect(conversation.prompt_field)
    check_template(conversation, dialect, serving.options.trust_request_chat_template)
    length = sum(len(message.get("content") or "") for message in conversation.messages)

    def prompt() -> tuple[str, list[int]]:
        try:
            text = rendered_prompt(tokenizer, dialect, conversation)
        except TemplateError as error:
            raise translate(error, conversation.prompt_field) from error
        return text, tokenizer.encode(text, add_special_tokens=options.add_special_tokens)

    options, max_tokens = conversation.prompt_options, conversation.params.max_tokens
    text, ids = await off_loop(length, prompt)
    return text, options.cut(serving, ids, max_tokens)
