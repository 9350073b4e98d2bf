"""What vLLM adds to a chat's answer on request: token ids, scores of the prompt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octavo.serving.openai.logprobs import scored
from octavo.serving.openai.sampling import SamplingFields
from octavo.serving.reply import Reply, ReplyChoice, ReplyDelta


class ChatExtras:
    """Adds nothing that was not asked for. One per answer."""

    def __init__(self, body: SamplingFields, reply: Reply) -> None:
        self._reply = reply
        self.wants_ids = bool(body.return_token_ids)
        self._num_scores = body.prompt_logprobs
        self._opened = False

    @property
    def _prompt_ids(self) -> list[int]:
        return self._reply.generation.requests[0].prompt_ids

    def chunks(
        self, delta: ReplyDelta, choices: Iterable[dict[str, Any]]
    ) -> Iterable[dict[str, Any]]:
        """The choices of a delta's chunks; the first one has the delta's token ids."""
        if not self.wants_ids:
            return choices
        empty = {"index": delta.index, "delta": {}, "logprobs": None, "finish_reason": None}
        first, *rest = list(choices) or [empty]
        first["token_ids"] = delta.raw.token_ids
        if not self._opened:
            first["prompt_token_ids"] = self._prompt_ids
        self._opened = True
        return [first, *rest]

    def whole(self, answer: dict[str, Any], choices: list[ReplyChoice]) -> dict[str, Any]:
        """The whole answer."""
        if self.wants_ids:
            answer["prompt_token_ids"] = self._prompt_ids
            for shown, choice in zip(answer["choices"], choices, strict=True):
                shown["token_ids"] = choice.token_ids
        if self._num_scores is not None:
            scores = self._reply.generation.prompt_logprobs.get(0)
            answer["prompt_logprobs"] = scored(scores, self._num_scores)
        return answer
