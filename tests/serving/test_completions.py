"""Text completions: prompts in four spellings, echo, logprobs, batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo import __version__
from tests.serving.live_server import LiveServer


def post(server: LiveServer, **body: Any) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": "abc", "temperature": 0, "max_tokens": 3, **body}
    answer = server.http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def chunks(server: LiveServer, **body: Any) -> list[dict[str, Any]]:
    body = {"model": "tiny", "prompt": "abc", "temperature": 0, "max_tokens": 3, **body}
    answer = server.http.post("/v1/completions", json={**body, "stream": True})
    *lines, last, end = answer.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_answer_has_the_protocols_shape(server: LiveServer) -> None:
    answer = post(server)
    assert answer.pop("id").startswith("cmpl-")
    assert isinstance(answer.pop("created"), int)
    usage = answer.pop("usage")
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 3)
    assert answer == {
        "object": "text_completion",
        "model": "tiny",
        "system_fingerprint": f"octavo-{__version__}",
        "choices": [
            {
                "index": 0,
                "text": "def",
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
    }


@pytest.mark.parametrize("prompt", ["abc", ["abc"], [97, 98, 99], [[97, 98, 99]]], ids=str)
def test_prompts_in_four_spellings(server: LiveServer, prompt: Any) -> None:
    assert post(server, prompt=prompt)["choices"][0]["text"] == "def"


def test_default_is_sixteen_tokens(server: LiveServer) -> None:
    assert post(server, max_tokens=None)["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("echo", [False, True])
def test_batches_and_samples_are_numbered(server: LiveServer, echo: bool) -> None:
    body = {"prompt": ["a", "k", "AB"], "n": 2, "echo": echo}
    answer = post(server, **body)
    start = ["a", "a", "k", "k", "AB", "AB"] if echo else [""] * 6
    expected = [
        a + b for a, b in zip(start, ["bcd", "bcd", "lmn", "lmn", "CDE", "CDE"], strict=True)
    ]
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert answer["usage"]["prompt_tokens"] == 4
    assert answer["usage"]["completion_tokens"] == 18
    texts = [""] * 6
    for chunk in chunks(server, **body):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == expected


def test_echo_scores_the_prompt(server: LiveServer) -> None:
    """What lm-eval asks for: no new token, logprobs of the prompt's own."""
    whole = post(server, echo=True, logprobs=2, max_tokens=0)
    choice = whole["choices"][0]
    assert choice["text"] == "abc"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["a", "b", "c"]
    assert logprobs["text_offset"] == [0, 1, 2]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    for place in (1, 2):
        token, value = logprobs["tokens"][place], logprobs["token_logprobs"][place]
        assert logprobs["top_logprobs"][place][token] == value
        assert max(logprobs["top_logprobs"][place].values()) == value  # the script's own choice
    assert whole["usage"]["completion_tokens"] == 0
    assert choice["finish_reason"] == "length"


def test_logprobs_of_listed_tokens(server: LiveServer) -> None:
    logprobs = post(server, logprobs=5, logprob_token_ids=[67], max_tokens=1)["choices"][0][
        "logprobs"
    ]
    (token,), (top,) = logprobs["tokens"], logprobs["top_logprobs"]
    assert set(top) == {token, "C"}
    assert top[token] == logprobs["token_logprobs"][0]


def test_echo_without_new_tokens_or_logprobs(server: LiveServer) -> None:
    assert post(server, echo=True, max_tokens=0)["choices"][0]["text"] == "abc"


@pytest.mark.parametrize("body", [{"logprobs": 3}, {"logprobs": 0, "echo": True}], ids=str)
def test_a_stream_adds_up_to_the_whole(server: LiveServer, body: dict[str, Any]) -> None:
    whole = post(server, **body, n=2)["choices"]
    parts: list[list[dict[str, Any]]] = [[], []]
    for chunk in chunks(server, **body, n=2):
        for choice in chunk["choices"]:
            parts[choice["index"]].append(choice)
    for choice, own in zip(whole, parts, strict=True):
        assert "".join(part["text"] for part in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        for name, values in choice["logprobs"].items():
            assert [v for part in own for v in part["logprobs"][name]] == values


def test_bytes_that_are_no_character_are_shown_as_bytes(server: LiveServer) -> None:
    answer = post(server, prompt=[200], echo=True, logprobs=0, max_tokens=1)
    assert answer["choices"][0]["logprobs"]["tokens"] == ["bytes:\\xc8", "A"]
