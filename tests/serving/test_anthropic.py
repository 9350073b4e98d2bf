"""Anthropic messages, by raw HTTP and through the official client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest

from tests.serving.live_server import LiveServer

MESSAGES: list[Any] = [{"role": "user", "content": "say:Hello there"}]
CACHED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}


def post(server: LiveServer, path: str = "/v1/messages", **body: Any) -> httpx.Response:
    body = {"model": "tiny", "max_tokens": 100, "messages": MESSAGES, **body}
    return server.http.post(path, json={k: v for k, v in body.items() if v is not ...})


def events(server: LiveServer, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, checked for their frame."""
    answer = post(server, stream=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *blocks, end = answer.text.split("\n\n")
    assert end == ""
    found = []
    for block in blocks:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_message_has_the_protocols_shape(server: LiveServer) -> None:
    answer = post(server).json()
    assert answer.pop("id").startswith("msg")
    usage = answer.pop("usage")
    assert usage["output_tokens"] == len("Hello there") + 1
    total = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert total == len("user\nsay:Hello there\nassistant\n") + 3
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "text", "text": "Hello there", "citations": None}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
    }


def test_events_come_in_order(server: LiveServer) -> None:
    found = events(server, messages=[{"role": "user", "content": "say:abc"}])
    kinds = [event["type"] for event in found]
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found[0]["message"]["content"] == []
    assert found[0]["message"]["usage"]["input_tokens"] > 0
    assert "".join(e["delta"]["text"] for e in found if e["type"] == kinds[3]) == "abc"
    assert found[-2]["delta"]["stop_reason"] == "end_turn"
    assert found[-2]["usage"]["output_tokens"] == 4


@pytest.mark.parametrize(
    ("body", "reason", "sequence", "text"),
    [
        ({"max_tokens": 3}, "max_tokens", None, "Hel"),
        ({"stop_sequences": ["lo"]}, "stop_sequence", "lo", "Hel"),
        ({"temperature": 0, "top_k": 1, "top_p": 0.5}, "end_turn", None, "Hello there"),
        ({"system": "Be kind."}, "end_turn", None, "Hello there"),
        ({"system": [CACHED]}, "end_turn", None, "Hello there"),
    ],
    ids=str,
)
def test_answers_end_as_asked(
    server: LiveServer, body: dict[str, Any], reason: str, sequence: str | None, text: str
) -> None:
    answer = post(server, **body).json()
    assert answer["content"][0]["text"] == text
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)
    end = events(server, **body)[-2]["delta"]
    assert (end["stop_reason"], end["stop_sequence"]) == (reason, sequence)


def test_more_tokens_than_the_context_holds_are_no_error(server: LiveServer) -> None:
    answer = post(server, max_tokens=10**6)
    assert answer.json()["stop_reason"] == "end_turn"


def test_tokens_are_counted_as_they_are_used(server: LiveServer) -> None:
    body = {"system": "Be kind.", "messages": [*MESSAGES, {"role": "user", "content": "x"}]}
    counted = post(server, "/v1/messages/count_tokens", max_tokens=..., **body).json()
    usage = post(server, **body).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def user(**block: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


BAD = [
    ("max_tokens", {"max_tokens": ...}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": "5"}),
    ("messages", {"messages": []}),
    ("messages", {"messages": "hi"}),
    ("messages[0].role", {"messages": [{"role": "robot", "content": "x"}]}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[0].content[0].type", user(type="image")),
    ("messages[0].content[0].text", user(type="text")),
    ("messages[0].content[0].tool_use_id", user(type="tool_result", tool_use_id="x")),
    ("messages[0].content[0].source", user(type="document", source={"type": "base64"})),
    ("system", {"system": 5}),
    ("stop_sequences", {"stop_sequences": [""]}),
    ("stop_sequences", {"stop_sequences": ["x"] * 65}),
    ("temperature", {"temperature": -1}),
    ("top_k", {"top_k": -5}),
    ("top_p", {"top_p": 2}),
    ("stream", {"stream": "yes"}),
    ("tool_choice", {"tool_choice": {"type": "any"}}),
    ("tool_choice", {"tool_choice": {"type": "sometimes"}}),
    ("tools[0].input_schema", {"tools": [{"name": "x"}]}),
    ("tools[0].type", {"tools": [{"name": "x", "type": "bash_20250124"}]}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled"}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 5}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 5000}}),
    ("metadata.user_id", {"metadata": {"user_id": 5}}),
    ("mcp_servers", {"mcp_servers": [{"url": "x"}]}),
    ("surprise", {"surprise": 1}),
]


@pytest.mark.parametrize(("field", "body"), BAD, ids=str)
def test_bad_requests_name_the_field(server: LiveServer, field: str, body: dict[str, Any]) -> None:
    answer = post(server, **body)
    assert answer.status_code == 400, answer.text
    error = answer.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert field in error["error"]["message"]


def test_other_errors_have_anthropics_shape(server: LiveServer) -> None:
    answers = [
        (post(server, model="gpt"), 404, "not_found_error"),
        (server.http.get("/v1/messages"), 405, "invalid_request_error"),
        (server.http.get("/v1/messages/batches"), 404, "not_found_error"),
        (server.http.post("/v1/messages", content=b"{"), 400, "invalid_request_error"),
        (server.http.post("/v1/messages", content=b"x" * 2**24), 413, "request_too_large"),
    ]
    for answer, status, kind in answers:
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_official_client(anthropic_client: anthropic.Anthropic) -> None:
    message = anthropic_client.messages.create(model="tiny", max_tokens=50, messages=MESSAGES)
    assert message.content[0].type == "text"
    assert message.content[0].text == "Hello there"
    with anthropic_client.messages.stream(model="tiny", max_tokens=50, messages=MESSAGES) as stream:
        assert "".join(stream.text_stream) == "Hello there"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == message.usage.output_tokens
    beta = anthropic_client.beta.messages.create(model="tiny", max_tokens=50, messages=MESSAGES)
    assert beta.content[0].type == "text"
    assert beta.content[0].text == "Hello there"
    assert anthropic_client.messages.count_tokens(model="tiny", messages=MESSAGES).input_tokens > 0
    assert [model.id for model in anthropic_client.models.list()] == ["tiny"]
    assert anthropic_client.models.retrieve("tiny").display_name == "tiny"
    with pytest.raises(anthropic.NotFoundError):
        anthropic_client.models.retrieve("other")
    with pytest.raises(anthropic.BadRequestError, match="top_p"):
        anthropic_client.messages.create(
            model="tiny", max_tokens=5, messages=MESSAGES, extra_body={"top_p": 7}
        )


async def test_official_async_client(server: LiveServer) -> None:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="x") as client:
        stream = await client.messages.create(
            model="tiny", max_tokens=50, messages=MESSAGES, stream=True
        )
        kinds = [event.type async for event in stream]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
