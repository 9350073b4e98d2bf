"""Structured output over HTTP: what the fields mean, streamed and whole, beside other requests."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.serving.live_server import LiveServer
from tests.serving.tiny_model import VARIED

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "n": {"enum": [1, 22]}},
    "required": ["on", "n"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}


def answer(server: LiveServer, path: str, **body: Any) -> tuple[str, str]:
    """(text, finish_reason) of a request whose answers vary."""
    prompt = {"messages": [{"role": "user", "content": "a"}]} if path == CHAT else {"prompt": "a"}
    body = {"model": "tiny", "temperature": VARIED, "seed": 1, "max_tokens": 200, **prompt, **body}
    reply = server.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    return choice["message"]["content"] if path == CHAT else choice["text"], choice["finish_reason"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"response_format": FORMAT}, r"\{\s*\"on\".*\}"),
        ({"structured_outputs": {"json": SCHEMA}}, r"\{\s*\"on\".*\}"),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, r"\{\s*\"on\".*\}"),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            r"\{\"on\"\S+\}",
        ),
        ({"structured_outputs": {"regex": "[ab]{3}!"}}, "[ab]{3}!"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"structured_outputs": {"grammar": 'root ::= "<" [0-9] ">"'}}, "<[0-9]>"),
        ({"structured_outputs": {"grammar": 'start: "<" /[0-9]/ ">"'}}, "<[0-9]>"),
        ({"guided_json": SCHEMA}, r"\{\s*\"on\".*\}"),
        ({"guided_regex": "[ab]{3}!"}, "[ab]{3}!"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_grammar": 'root ::= "<" [0-9] ">"'}, "<[0-9]>"),
    ],
)
def test_every_field_holds_the_answer(
    server: LiveServer, path: str, fields: dict[str, Any], pattern: str
) -> None:
    text, reason = answer(server, path, **fields)
    assert re.fullmatch(pattern, text, re.DOTALL), text
    assert reason == "stop"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
        {"guided_json_object": True},
    ],
)
def test_json_object_is_an_object_however_long(server: LiveServer, fields: dict[str, Any]) -> None:
    text, reason = answer(server, CHAT, **fields, max_tokens=400)
    assert text.startswith("{")
    if reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_free_text_is_what_it_was(server: LiveServer) -> None:
    plain = answer(server, CHAT, temperature=0, max_tokens=5)
    assert (
        answer(server, CHAT, temperature=0, max_tokens=5, response_format={"type": "text"}) == plain
    )
    assert answer(server, CHAT, temperature=0, max_tokens=5, guided_json_object=False) == plain


def test_a_streamed_answer_is_the_whole_one(server: LiveServer) -> None:
    body = {"model": "tiny", "prompt": "a", "seed": 5, "max_tokens": 99, "response_format": FORMAT}
    whole = server.http.post(TEXT, json=body).json()["choices"][0]["text"]
    lines = server.http.post(TEXT, json={**body, "stream": True}).text.split("\n\n")
    chunks = [
        json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")
    ]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole
    assert set(json.loads(whole)) == {"on", "n"}


def test_choices_of_one_request_are_all_held(server: LiveServer) -> None:
    body = {"model": "tiny", "prompt": "a", "n": 4, "guided_choice": ["yes", "no"]}
    choices = server.http.post(TEXT, json=body).json()["choices"]
    assert {choice["text"] for choice in choices} <= {"yes", "no"}
    assert len(choices) == 4


def test_a_bad_schema_is_a_400_before_a_stream_begins(server: LiveServer) -> None:
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"contains": {}}}}
    body = {"model": "tiny", "prompt": "a", "stream": True, "response_format": bad}
    reply = server.http.post(TEXT, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "response_format"
    assert error["message"] == 'response_format: unsupported keyword "contains" at #/contains'


def test_two_ways_of_saying_it_are_refused(server: LiveServer) -> None:
    body = {"model": "tiny", "prompt": "a", "response_format": FORMAT, "guided_regex": "a"}
    reply = server.http.post(TEXT, json=body)
    assert reply.status_code == 400
    assert "cannot be combined" in reply.json()["error"]["message"]


def test_others_are_answered_while_hostile_schemas_come_in(server: LiveServer) -> None:
    hostile = {f"k{i}": {"type": "string"} for i in range(2500)}
    bodies = [
        {
            "model": "tiny",
            "prompt": "a",
            "max_tokens": 1,
            "guided_json": {"properties": hostile, "x": i},
        }
        for i in range(3)
    ]
    with ThreadPoolExecutor(3) as pool:
        pending = [pool.submit(server.http.post, TEXT, json=body) for body in bodies]
        assert (
            server.complete("a", temperature=0, max_tokens=3).json()["choices"][0]["text"] == "bcd"
        )
        assert {reply.result().status_code for reply in pending} <= {200, 400}


class Switch(BaseModel):
    on: bool


def test_the_official_client_parses_its_own_models(openai_client: openai.OpenAI) -> None:
    completion = openai_client.chat.completions.parse(
        model="tiny", messages=[{"role": "user", "content": "a"}], response_format=Switch
    )
    parsed = completion.choices[0].message.parsed
    assert isinstance(parsed, Switch)
