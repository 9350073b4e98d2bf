"""Sampling fields beyond OpenAI's, over HTTP. The scripted model says the next character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.serving.errors import ApiError
from octavo.serving.prompts import infill
from octavo.tokenizer.special import SpecialTokens
from tests.serving.live_server import LiveServer
from tests.serving.tiny_model import VARIED

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def ask(server: LiveServer, path: str = TEXT, **body: Any) -> dict[str, Any]:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "a"}
    answer = server.http.post(
        path, json={"model": "tiny", "temperature": 0, "max_tokens": 4, **prompt, **body}
    )
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def text(answer: dict[str, Any]) -> str:
    choice = answer["choices"][0]
    shown: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return shown


def stream(server: LiveServer, path: str, **body: Any) -> list[dict[str, Any]]:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "a"}
    fields = {"model": "tiny", "temperature": 0, "max_tokens": 4, "stream": True, **prompt, **body}
    lines = server.http.post(path, json=fields).text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_only_allowed_tokens(server: LiveServer, path: str) -> None:
    assert set(text(ask(server, path, allowed_token_ids=[120, 121]))) <= {"x", "y"}


def test_bad_words(server: LiveServer) -> None:
    assert text(ask(server)) == "bcde"
    assert "bc" not in text(ask(server, bad_words=["bc"], max_tokens=30))


def test_an_answer_in_circles_ends(server: LiveServer) -> None:
    detection = {"max_pattern_size": 1, "min_pattern_size": 1, "min_count": 3}
    fields = {"allowed_token_ids": [65], "max_tokens": 50}
    choice = ask(server, **fields, repetition_detection=detection)["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == ("AAA", "repetition_detected")
    off = {"max_pattern_size": 0}
    assert text(ask(server, **fields, repetition_detection=off)) == "A" * 50


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"truncate_prompt_tokens": 2}, "z{"),
        ({"truncate_prompt_tokens": 2, "truncation_side": "right"}, "bc"),
        ({"truncate_prompt_tokens": -1}, "z{"),
        ({"truncate_prompt_tokens": 99}, "z{"),
    ],
)
def test_prompts_are_cut(server: LiveServer, fields: dict[str, Any], expected: str) -> None:
    answer = ask(server, prompt="aaxyy"[:2] + "xyy", max_tokens=2, **fields)
    assert text(answer) == expected
    shown = answer["usage"]["prompt_tokens"]
    assert shown == min(5, fields["truncate_prompt_tokens"] % 100)


def test_a_long_prompt_is_cut_to_what_the_context_holds(server: LiveServer) -> None:
    answer = ask(server, prompt="a" * 5000, max_tokens=6, truncate_prompt_tokens=-1)
    assert answer["usage"]["prompt_tokens"] == 4096 - 6


def test_chats_are_cut_too(server: LiveServer) -> None:
    assert ask(server, CHAT, truncate_prompt_tokens=3)["usage"]["prompt_tokens"] == 3


def test_token_ids_are_returned(server: LiveServer) -> None:
    choice = ask(server, return_token_ids=True)["choices"][0]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([97], [98, 99, 100, 101])
    chat = ask(server, CHAT, return_token_ids=True)
    assert chat["choices"][0]["token_ids"] == list(b"ABCD")
    assert len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]
    assert "token_ids" not in ask(server)["choices"][0]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_token_ids_of_a_stream_are_those_of_the_whole(server: LiveServer, path: str) -> None:
    whole = ask(server, path, return_token_ids=True)
    choices = [c for chunk in stream(server, path, return_token_ids=True) for c in chunk["choices"]]
    ids = [token for choice in choices for token in choice.get("token_ids", [])]
    assert ids == whole["choices"][0]["token_ids"]
    prompts = [choice["prompt_token_ids"] for choice in choices if "prompt_token_ids" in choice]
    assert prompts == [whole.get("prompt_token_ids") or whole["choices"][0]["prompt_token_ids"]]


def test_tokens_are_shown_as_ids(server: LiveServer) -> None:
    shown = ask(server, logprobs=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
    assert shown["tokens"] == ["token_id:98", "token_id:99", "token_id:100", "token_id:101"]
    assert list(shown["top_logprobs"][0]) == ["token_id:98"]
    assert shown["text_offset"] == [0, 1, 2, 3]
    chat = ask(server, CHAT, logprobs=True, return_tokens_as_token_ids=True)
    first = chat["choices"][0]["logprobs"]["content"][0]
    assert (first["token"], first["bytes"]) == ("token_id:65", [65])


def test_prompts_are_scored(server: LiveServer) -> None:
    scores = ask(server, prompt="abz", prompt_logprobs=1)["choices"][0]["prompt_logprobs"]
    assert scores[0] is None
    assert scores[1]["98"]["rank"] == 1
    assert scores[1]["98"]["decoded_token"] == "b"
    assert list(scores[1]) == ["98"]
    assert set(scores[2]) == {"122", "99"}  # what came, and what was the likeliest
    assert scores[2]["122"]["rank"] > 1
    chat = ask(server, CHAT, prompt_logprobs=0)
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    assert "prompt_logprobs" not in ask(server, CHAT)


def test_the_client_may_choose_the_id(server: LiveServer) -> None:
    assert ask(server, request_id="my-1")["id"] == "cmpl-my-1"
    assert ask(server, CHAT, request_id="my-1")["id"] == "chatcmpl-my-1"
    assert ask(server, prompt=["a", "b"], request_id="my-2")["id"] == "cmpl-my-2"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_counts_with_every_chunk(server: LiveServer, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = stream(server, path, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == last["usage"]["completion_tokens"] == 4
    plain = stream(server, path, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in plain[:-1])


def test_the_best_of_several_is_shown(server: LiveServer) -> None:
    fields = {"temperature": 2 * VARIED, "seed": 1, "max_tokens": 2, "logprobs": 0}
    every = ask(server, n=6, **fields)["choices"]
    best = ask(server, n=2, best_of=6, **fields)
    means = [sum(c["logprobs"]["token_logprobs"]) for c in every]
    wanted = sorted(range(6), key=lambda i: (-means[i], i))[:2]
    assert [c["text"] for c in best["choices"]] == [every[i]["text"] for i in wanted]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 12
    without = ask(server, best_of=6, temperature=2 * VARIED, seed=1, max_tokens=2)["choices"]
    assert [(c["text"], c["logprobs"]) for c in without] == [(best["choices"][0]["text"], None)]


class InfillTokenizer:
    """Bytes, and the marks of one family from 300 on."""

    def __init__(self, *marks: str) -> None:
        self.special = SpecialTokens(prefix_ids=(299,))
        self._marks = {mark: 300 + place for place, mark in enumerate(marks)}

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> list[int]:
        if parse_special and text in self._marks:
            return [self._marks[text]]
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        names = {token: mark for mark, token in self._marks.items()}
        return names[token_id].encode() if token_id in names else bytes([token_id])


@pytest.mark.parametrize(
    "marks",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<|file_sep|>"),
    ],
)
def test_a_gap_is_marked_as_the_family_does(marks: tuple[str, ...]) -> None:
    tokenizer: Any = InfillTokenizer(*marks)
    ids, stops = infill(tokenizer, "ab<|fim_middle|>", "c")
    assert ids == [299, 300, *b"ab<|fim_middle|>", 301, *b"c", 302]
    assert stops == [303]


def test_a_model_without_such_marks_refuses() -> None:
    tokenizer: Any = InfillTokenizer("<|fim_prefix|>")
    with pytest.raises(ApiError, match="no fill-in-the-middle"):
        infill(tokenizer, "a", "b")
