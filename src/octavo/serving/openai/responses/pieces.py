"""From blocks to output items, and to the events that build them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from octavo.serving.blocks import Block, BlockEvent
from octavo.serving.generation import new_id
from octavo.serving.openai.responses import answer, events

_PREFIXES = {"text": "msg", "reasoning": "rs", "tool_call": "fc"}


class Pieces:
    """The items of one response. summarizes: thoughts are shown as summaries; encrypts: their
    items carry them once more for being sent back."""

    def __init__(self, summarizes: bool, encrypts: bool) -> None:
        self._summarizes, self._encrypts = summarizes, encrypts
        self._ids: list[str] = []  # by index
        self._logprobs: list[answer.Logprob] = []  # of the text that is open

    def describe(
        self, change: BlockEvent, fresh: list[answer.Logprob], cut_off: bool
    ) -> Iterator[events.Event]:
        """What a change of a block looks like. fresh: logprobs of a text's new tokens; cut_off:
        a limit ended the block."""
        block = change.block
        if change.action == "open":
            self._ids.append(new_id(_PREFIXES[block.kind]).replace("-", "_"))
            item = self._item(block, "", "in_progress")
            yield events.ItemAdded(output_index=block.index, item=item)
        match block.kind:
            case "text":
                yield from self._text(change, fresh)
            case "reasoning" if self._summarizes:
                yield from self._summary(change)
            case "reasoning":
                yield from self._reasoning(change)
            case "tool_call":
                yield from self._call(change)
        if change.action == "close":
            item = self._item(block, block.text, "incomplete" if cut_off else "completed")
            yield events.ItemDone(output_index=block.index, item=item)

    def _item(self, block: Block, text: str, status: answer.ItemStatus) -> answer.OutputItem:
        """The item of a block; an item that has just begun has no parts yet."""
        item_id, begun = self._ids[block.index], status != "in_progress"
        match block.kind:
            case "text":
                part = answer.OutputText(text, logprobs=self._logprobs)
                return answer.MessageItem(item_id, status, [part] if begun else [])
            case "reasoning":
                return self._thought(item_id, text, status)
            case "tool_call":
                return answer.FunctionCallItem(item_id, status, block.id, block.name, text)

    def _thought(self, item_id: str, text: str, status: answer.ItemStatus) -> answer.ReasoningItem:
        item = answer.ReasoningItem(item_id, status, [], [])
        if status == "in_progress":
            return item
        if self._encrypts:
            item.encrypted_content = base64.b64encode(text.encode("utf-8", "replace")).decode()
        if self._summarizes:
            item.summary = [answer.SummaryText(text)]
        else:
            item.content = [answer.ReasoningText(text)]
        return item

    def _text(self, change: BlockEvent, fresh: list[answer.Logprob]) -> Iterator[events.Event]:
        place, item_id = change.block.index, self._ids[change.block.index]
        match change.action:
            case "open":
                self._logprobs = []
                empty = answer.OutputText()
                yield events.PartAdded(item_id=item_id, output_index=place, part=empty)
            case "more":
                self._logprobs = [*self._logprobs, *fresh]
                yield events.TextDelta(
                    item_id=item_id, output_index=place, delta=change.text, logprobs=fresh
                )
            case "close":
                text, logprobs = change.block.text, self._logprobs
                part = answer.OutputText(text, logprobs=logprobs)
                yield events.TextDone(
                    item_id=item_id, output_index=place, text=text, logprobs=logprobs
                )
                yield events.PartDone(item_id=item_id, output_index=place, part=part)

    def _reasoning(self, change: BlockEvent) -> Iterator[events.Event]:
        place, item_id = change.block.index, self._ids[change.block.index]
        match change.action:
            case "open":
                part = answer.ReasoningText()
                yield events.PartAdded(item_id=item_id, output_index=place, part=part)
            case "more":
                yield events.ReasoningDelta(item_id=item_id, output_index=place, delta=change.text)
            case "close":
                text = change.block.text
                part = answer.ReasoningText(text)
                yield events.ReasoningDone(item_id=item_id, output_index=place, text=text)
                yield events.PartDone(item_id=item_id, output_index=place, part=part)

    def _summary(self, change: BlockEvent) -> Iterator[events.Event]:
        place, item_id = change.block.index, self._ids[change.block.index]
        match change.action:
            case "open":
                part = answer.SummaryText()
                yield events.SummaryAdded(item_id=item_id, output_index=place, part=part)
            case "more":
                yield events.SummaryDelta(item_id=item_id, output_index=place, delta=change.text)
            case "close":
                text = change.block.text
                part = answer.SummaryText(text)
                yield events.SummaryTextDone(item_id=item_id, output_index=place, text=text)
                yield events.SummaryDone(item_id=item_id, output_index=place, part=part)

    def _call(self, change: BlockEvent) -> Iterator[events.Event]:
        block, item_id = change.block, self._ids[change.block.index]
        match change.action:
            case "more":
                yield events.ArgumentsDelta(
                    item_id=item_id, output_index=block.index, delta=change.text
                )
            case "close":
                yield events.ArgumentsDone(
                    item_id=item_id,
                    output_index=block.index,
                    name=block.name,
                    arguments=block.text,
                )
