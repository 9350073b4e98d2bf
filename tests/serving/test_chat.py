"""Chat completions, by raw HTTP and through the official client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from octavo import __version__
from tests.serving.live_server import LiveServer
from tests.serving.tiny_model import VARIED

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


def post(server: LiveServer, **body: Any) -> httpx.Response:
    body = {"model": "tiny", "messages": MESSAGES, "temperature": 0, **body}
    return server.http.post("/v1/chat/completions", json=body)


def events(server: LiveServer, **body: Any) -> list[dict[str, Any]]:
    """The chunks of a stream, checked for its frame."""
    answer = post(server, stream=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, last, end = answer.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_answer_has_the_protocols_shape(server: LiveServer) -> None:
    answer = post(server, max_tokens=5).json()
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "chat.completion",
        "model": "tiny",
        "system_fingerprint": f"octavo-{__version__}",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "ABCDE",
                    "refusal": None,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": len("user\nhi\nassistant\n") + 3,
            "completion_tokens": 5,
            "total_tokens": len("user\nhi\nassistant\n") + 8,
            "prompt_tokens_details": answer["usage"]["prompt_tokens_details"],
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_without_a_limit_the_model_ends_the_answer(server: LiveServer) -> None:
    choice = post(server).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "".join(map(chr, range(65, 127)))


def test_chunks_come_in_order(server: LiveServer) -> None:
    chunks = events(server, max_tokens=3, stream_options={"include_usage": True})
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    *body, usage = chunks
    deltas = [chunk["choices"][0]["delta"] for chunk in body]
    assert deltas == [
        {"role": "assistant", "content": ""},
        *({"content": letter} for letter in "ABC"),
        {},
    ]
    assert [c["choices"][0]["finish_reason"] for c in body] == [None] * 4 + ["length"]
    assert all(chunk["usage"] is None for chunk in body)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert "usage" not in events(server, max_tokens=1)[0]


@pytest.mark.parametrize(
    "body",
    [
        {"stop": "FG"},
        {"stop": ["X", "K"], "include_stop_str_in_output": True},
        {"n": 3, "temperature": VARIED, "seed": 7, "max_tokens": 30},
        {"logprobs": True, "top_logprobs": 3, "stop": ["HI"]},
        {"logit_bias": {"66": -100}, "max_tokens": 4},
        {"stop_token_ids": [70]},
        {"min_tokens": 70, "max_tokens": 75},
    ],
    ids=str,
)
def test_a_stream_adds_up_to_the_whole(server: LiveServer, body: dict[str, Any]) -> None:
    whole = post(server, **body).json()["choices"]
    for choice in whole:
        parts = [
            part
            for chunk in events(server, **body)
            for part in chunk["choices"]
            if part["index"] == choice["index"]
        ]
        text = "".join(part["delta"].get("content", "") for part in parts)
        assert text == choice["message"]["content"]
        assert parts[-1]["finish_reason"] == choice["finish_reason"]
        assert parts[-1]["stop_reason"] == choice["stop_reason"]
        if choice["logprobs"]:
            shown = [e for part in parts for e in (part["logprobs"] or {"content": []})["content"]]
            assert shown == choice["logprobs"]["content"]


def test_stop_strings_are_cut_and_named(server: LiveServer) -> None:
    choice = post(server, stop=["zzz", "EF"]).json()["choices"][0]
    assert choice["message"]["content"] == "ABCD"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "EF")


def test_logprobs_have_the_best_candidates_first(server: LiveServer) -> None:
    content = post(server, logprobs=True, top_logprobs=4, max_tokens=2).json()
    entries = content["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["A", "B"]
    assert [entry["bytes"] for entry in entries] == [[65], [66]]
    for entry in entries:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_listed_tokens(server: LiveServer, stream: bool) -> None:
    """In place of the likeliest, of the raw logits, and the same for a token that is drawn."""
    wide = post(server, logprobs=True, top_logprobs=20, max_tokens=2).json()
    listed = {"logprobs": True, "top_logprobs": 3, "logprob_token_ids": [66, 200, 65, 66]}
    answer = post(server, max_tokens=2, stream=stream, **listed)
    if stream:
        lines = [line[6:] for line in answer.text.split("\n\n") if line.startswith("data: {")]
        parts = [json.loads(line)["choices"][0]["logprobs"] for line in lines]
        entries = [entry for part in parts if part for entry in part["content"]]
    else:
        entries = answer.json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["A", "B"]
    for entry, whole in zip(entries, wide["choices"][0]["logprobs"]["content"], strict=True):
        assert entry["logprob"] == whole["logprob"]
        assert {top["token"] for top in entry["top_logprobs"]} == {"A", "B", "bytes:\\xc8"}
        known = {top["token"]: top["logprob"] for top in whole["top_logprobs"]}
        assert entry["top_logprobs"][0] == {k: entry[k] for k in ("token", "logprob", "bytes")}
        for top in entry["top_logprobs"]:
            assert known.get(top["token"], top["logprob"]) == top["logprob"]


def test_seeds_repeat_and_samples_differ(server: LiveServer) -> None:
    body = {"temperature": 2 * VARIED, "seed": 3, "n": 4, "max_tokens": 12}
    one, two = (post(server, **body).json()["choices"] for _ in range(2))
    assert one == two
    assert len({choice["message"]["content"] for choice in one}) == 4


def test_harmless_and_idle_fields_are_accepted(server: LiveServer) -> None:
    answer = post(
        server,
        max_completion_tokens=2,
        user="me",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        tools=[],
        tool_choice="none",
        response_format={"type": "text"},
        logit_bias=None,
        top_p=None,
        n=None,
        reasoning_effort=None,
    )
    assert answer.json()["choices"][0]["message"]["content"] == "AB"


def test_messages_in_every_spelling(server: LiveServer) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": None, "audio": None, "tool_calls": None},
        {"role": "user", "content": "", "name": "me"},
    ]
    answer = post(server, messages=messages, max_tokens=1).json()
    prompt = "system\nbe brief\nuser\na\nb\nassistant\nc\nuser\n\nassistant\n"
    assert answer["usage"]["prompt_tokens"] == len(prompt) + 9


def test_the_prefix_cache_shows_in_usage(server: LiveServer) -> None:
    messages = [{"role": "user", "content": "x" * 200}]
    for expected in (0, 192):
        usage = post(server, messages=messages, max_tokens=1).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == expected
    salted = post(server, messages=messages, max_tokens=1, cache_salt="other").json()["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


class TestOfficialClient:
    def test_whole(self, openai_client: openai.OpenAI) -> None:
        answer = openai_client.chat.completions.create(
            model="tiny", messages=MESSAGES, temperature=0, max_tokens=4, logprobs=True
        )
        assert answer.choices[0].message.content == "ABCD"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4

    def test_stream(self, openai_client: openai.OpenAI) -> None:
        stream = openai_client.chat.completions.create(
            model="tiny", messages=MESSAGES, temperature=0, max_tokens=4, stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "ABCD"

    async def test_async(self, server: LiveServer) -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(
                model="tiny", messages=MESSAGES, temperature=0, max_tokens=4, stream=True
            )
            text = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(text) == "ABCD"

    def test_stream_helper(self, openai_client: openai.OpenAI) -> None:
        with openai_client.chat.completions.stream(
            model="tiny", messages=MESSAGES, temperature=0, stop="E"
        ) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.content == "ABCD"

    def test_completions(self, openai_client: openai.OpenAI) -> None:
        answer = openai_client.completions.create(
            model="tiny", prompt="a", temperature=0, max_tokens=3
        )
        assert answer.choices[0].text == "bcd"

    def test_models(self, openai_client: openai.OpenAI) -> None:
        assert [model.id for model in openai_client.models.list()] == ["tiny"]
        assert openai_client.models.retrieve("tiny").owned_by == "octavo"

    def test_errors_are_its_own(self, openai_client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            openai_client.models.retrieve("other")
        with pytest.raises(openai.BadRequestError) as caught:
            openai_client.chat.completions.create(model="tiny", messages=MESSAGES, top_p=3)
        assert caught.value.param == "top_p"
