"""Input items: what a conversation is made of in the Responses protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from octavo.serving.body import StrictModel

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(StrictModel):
    """A text that goes in."""

    type: Literal["input_text"]
    text: str


class OutputText(StrictModel):
    """A text of an earlier answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] | None = Field(default=None, max_length=0)
    logprobs: list[Any] | None = None


class Refusal(StrictModel):
    """An earlier refusal."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """As the model is to read it."""
        return self.refusal


Part = Annotated[InputText | OutputText | Refusal, Field(discriminator="type")]


class MessageItem(StrictModel):
    """A message. phase tells commentary from final answers, which templates do not know."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    @property
    def text(self) -> str:
        """Its texts, one after another."""
        parts = self.content
        return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


class SummaryText(StrictModel):
    """A piece of a summary."""

    type: Literal["summary_text"]
    text: str


class ReasoningText(StrictModel):
    """A piece of a thought."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(StrictModel):
    """A thought of an earlier answer."""

    type: Literal["reasoning"]
    summary: list[SummaryText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Status | None = None


class FunctionCallItem(StrictModel):
    """A call of an earlier answer. arguments: a JSON object as text."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=128)
    arguments: str
    id: str | None = None
    status: Status | None = None


class FunctionOutputItem(StrictModel):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, max_length=256)
    output: str | list[InputText]
    id: str | None = None
    status: Status | None = None

    @property
    def text(self) -> str:
        """Its texts, one after another."""
        parts = self.output
        return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


Item = Annotated[
    MessageItem | ReasoningItem | FunctionCallItem | FunctionOutputItem,
    Field(discriminator="type"),
]
ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])


def with_types(data: dict[str, Any]) -> dict[str, Any]:
    """A body whose messages all say that they are messages; the protocol lets them leave it out."""
    items = data.get("input")
    if not isinstance(items, list):
        return data
    return {**data, "input": [_typed(item) for item in items]}


def _typed(item: Any) -> Any:
    if isinstance(item, dict) and "role" in item and "type" not in item:
        return {**item, "type": "message"}
    return item
