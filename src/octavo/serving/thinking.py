"""What is thought, in tokens of the model: bounded for the engine, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.decoding import SamplingParams, ThinkingBudget
from octavo.decoding.thinking import Thinking
from octavo.errors import InvalidParameterError
from octavo.parsing import Dialect
from octavo.records import replace
from octavo.serving.errors import invalid
from octavo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.serving.conversation import Conversation

_ENDLESS = 2**31 - 1


def bounded(
    params: SamplingParams,
    conversation: Conversation,
    dialect: Dialect,
    tokenizer: Tokenizer,
    prompt: str,
) -> SamplingParams:
    """`params` with the conversation's budget. Where markers are no tokens of the model, it cannot
    be kept: raises ApiError, unless the protocol asks for a budget with all thinking."""
    limit, param = conversation.thinking_budget, conversation.thinking_budget_param
    if limit is None:
        return params
    budget = _budget(limit, param, dialect, tokenizer, prompt)
    if budget is None and param:
        message = "this model does not mark its thinking with tokens of its own"
        raise invalid(param, f"{param}: {message}")
    return replace(params, thinking_budget=budget)


def tracker_for(dialect: Dialect, tokenizer: Tokenizer, prompt: str) -> Thinking | None:
    """Counts the thinking of one answer by its tokens; None where its markers are no tokens."""
    budget = _budget(_ENDLESS, "", dialect, tokenizer, prompt)
    return None if budget is None else Thinking(budget)


def _budget(
    limit: int, param: str, dialect: Dialect, tokenizer: Tokenizer, prompt: str
) -> ThinkingBudget | None:
    marks = dialect.format.thought(prompt)
    if marks is None:
        return None
    begin, end = (tuple(tokenizer.encode(text, add_special_tokens=False)) for text in marks[:2])
    whole = len(begin) == 1 or dialect.format.harmony
    if not whole or len(end) != 1 or len(begin) > 4:  # in an answer they may be cut otherwise
        return None
    try:
        return ThinkingBudget(limit, begin, end, marks[2])
    except InvalidParameterError as error:
        raise invalid(param, str(error).replace(error.param, param, 1)) from None
