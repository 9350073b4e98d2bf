"""The events of a streamed response, named as OpenAI names them."""

from __future__ import annotations

import msgspec

from octavo.serving.openai.responses.answer import (
    Logprob,
    OutputItem,
    OutputText,
    ReasoningText,
    Response,
    SummaryText,
)


class _Event(msgspec.Struct, kw_only=True):
    """sequence_number counts the events of a stream from 0."""

    sequence_number: int = 0


class _Lifecycle(_Event, kw_only=True):
    response: Response


class Created(_Lifecycle, tag="response.created", kw_only=True):
    """First of all."""


class InProgress(_Lifecycle, tag="response.in_progress", kw_only=True):
    """Second."""


class Completed(_Lifecycle, tag="response.completed", kw_only=True):
    """Last, if the model ended the answer."""


class IncompleteEnd(_Lifecycle, tag="response.incomplete", kw_only=True):
    """Last, if a limit ended it."""


class Failed(_Lifecycle, tag="response.failed", kw_only=True):
    """Last, if an error ended it."""


class _OfItem(_Event, kw_only=True):
    output_index: int
    item: OutputItem


class ItemAdded(_OfItem, tag="response.output_item.added", kw_only=True):
    """An item begins, empty."""


class ItemDone(_OfItem, tag="response.output_item.done", kw_only=True):
    """An item is whole."""


class _Inside(_Event, kw_only=True):
    """item_id and output_index: of the item it belongs to."""

    item_id: str
    output_index: int


class _OfPart(_Inside, kw_only=True):
    content_index: int = 0


class _WithPart(_OfPart, kw_only=True):
    part: OutputText | ReasoningText


class PartAdded(_WithPart, tag="response.content_part.added", kw_only=True):
    """A part begins, empty."""


class PartDone(_WithPart, tag="response.content_part.done", kw_only=True):
    """A part is whole."""


class TextDelta(_OfPart, tag="response.output_text.delta", kw_only=True):
    """More text."""

    delta: str
    logprobs: list[Logprob]


class TextDone(_OfPart, tag="response.output_text.done", kw_only=True):
    """The whole text."""

    text: str
    logprobs: list[Logprob]


class ReasoningDelta(_OfPart, tag="response.reasoning_text.delta", kw_only=True):
    """More of a thought."""

    delta: str


class ReasoningDone(_OfPart, tag="response.reasoning_text.done", kw_only=True):
    """The whole thought."""

    text: str


class _OfSummary(_Inside, kw_only=True):
    summary_index: int = 0


class SummaryAdded(_OfSummary, tag="response.reasoning_summary_part.added", kw_only=True):
    """A summary begins, empty."""

    part: SummaryText


class SummaryDelta(_OfSummary, tag="response.reasoning_summary_text.delta", kw_only=True):
    """More of a summary."""

    delta: str


class SummaryTextDone(_OfSummary, tag="response.reasoning_summary_text.done", kw_only=True):
    """The whole text of a summary."""

    text: str


class SummaryDone(_OfSummary, tag="response.reasoning_summary_part.done", kw_only=True):
    """A summary is whole."""

    part: SummaryText


class ArgumentsDelta(_Inside, tag="response.function_call_arguments.delta", kw_only=True):
    """More arguments."""

    delta: str


class ArgumentsDone(_Inside, tag="response.function_call_arguments.done", kw_only=True):
    """All arguments."""

    name: str
    arguments: str


Event = (
    Created
    | InProgress
    | Completed
    | IncompleteEnd
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | SummaryAdded
    | SummaryDelta
    | SummaryTextDone
    | SummaryDone
    | ArgumentsDelta
    | ArgumentsDone
)
