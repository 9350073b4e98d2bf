"""From a conversation to the text the model continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import TemplateError
from octavo.parsing import Dialect, shaped
from octavo.serving.errors import invalid
from octavo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.serving.conversation import Conversation

RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "chat_template"})
"""What chat_template_kwargs cannot be called: the request has fields for them."""


def rendered_prompt(tokenizer: Tokenizer, dialect: Dialect, conversation: Conversation) -> str:
    """The prompt. Raises TemplateError if the template refuses."""
    tools = conversation.offered
    messages = shaped(conversation.messages, tools, dialect)
    goes_on = conversation.continue_final_message
    text = tokenizer.render_chat(
        messages,
        add_generation_prompt=conversation.add_generation_prompt and not goes_on,
        chat_template=conversation.chat_template,
        tools=[tool.for_template() for tool in tools] or None,
        **_variables(conversation),
    )
    return _upto_final(text, messages) if goes_on else text


def check_template(conversation: Conversation, dialect: Dialect, trusted: bool) -> None:
    """Raise ApiError for what the template cannot do, or what requests must not do to it."""
    if conversation.chat_template is not None and not trusted:
        message = "chat_template: this server does not take templates from requests"
        raise invalid("chat_template", f"{message}; see --trust-request-chat-template")
    for name in RESERVED & conversation.template_kwargs.keys():
        param = f"chat_template_kwargs.{name}"
        raise invalid(param, f"{param}: cannot be set; the request has a field for it")
    if "documents" in conversation.template_kwargs and not dialect.knows("documents"):
        raise invalid("documents", "documents: this model's chat template has no place for them")
    param = conversation.reasoning_param
    if conversation.reasoning and param and not dialect.can_reason:
        raise invalid(param, f"{param}: this model does not think before it answers")


def _variables(conversation: Conversation) -> dict[str, Any]:
    """Further variables for the template; whether to think has two names."""
    variables = dict(conversation.template_kwargs)
    if conversation.reasoning is not None:
        variables.setdefault("enable_thinking", conversation.reasoning)
        variables.setdefault("thinking", conversation.reasoning)
    return variables


def _upto_final(text: str, messages: list[dict[str, Any]]) -> str:
    """The prompt up to the end of the last message, which the answer continues."""
    final = str(messages[-1].get("content") or "")
    core = final.strip()
    at = text.rfind(core)
    if not core or at < 0:
        raise TemplateError(
            "continue_final_message: the last message is empty, or the chat template does not show "
            "it as it is"
        )
    end = at + len(core)
    blank = final[len(final.rstrip()) :]
    return text[: end + len(blank)] if text.startswith(blank, end) else text[:end]
