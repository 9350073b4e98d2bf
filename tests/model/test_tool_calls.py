"""A real model with tools: what it must call, it calls; what it likes to call is understood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.serving import ServerOptions
from octavo.weights import resolve
from tests.serving.live_server import LiveServer, live_server

pytestmark = pytest.mark.model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
QUESTION = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    options = ServerOptions(served_model_names=("qwen",))
    with live_server(
        resolve("qwen2.5-coder-1.5b"),
        backend="cpu",
        factory="octavo.engine.worker:load_engine",
        server=options,
        wait=False,
        max_model_len=2048,
        max_num_seqs=4,
    ) as live:
        live.wait_status(200, timeout_s=60)
        yield live


def answer(server: LiveServer, **body: Any) -> dict[str, Any]:
    body = {"model": "qwen", "tools": [WEATHER], "temperature": 0, "max_tokens": 80, **body}
    reply = server.http.post("/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_question_for_the_tool(server: LiveServer, choice: str) -> None:
    found = answer(server, messages=QUESTION, tool_choice=choice)
    assert found["finish_reason"] == "tool_calls"
    [call] = found["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris", "unit": "celsius"}


def test_a_call_the_model_did_not_want(server: LiveServer) -> None:
    chat = [{"role": "user", "content": "Say hello."}]
    named = {"type": "function", "function": {"name": "get_weather"}}
    [call] = answer(server, messages=chat, tool_choice=named)["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"city", "unit"}
    assert arguments["unit"] in ("celsius", "fahrenheit")


def test_the_result_is_used(server: LiveServer) -> None:
    call = {"name": "get_weather", "arguments": '{"city": "Paris", "unit": "celsius"}'}
    messages = [
        *QUESTION,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"temperature": 31}'},
    ]
    found = answer(server, messages=messages, tool_choice="none")
    assert "31" in found["message"]["content"]
    assert found["finish_reason"] == "stop"
