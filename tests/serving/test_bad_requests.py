"""Every malformed request gets a 4xx in OpenAI's shape that names the field; the server goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.serving.live_server import LiveServer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]
GOES_ON = {"continue_final_message": True}


def function(**parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


FUNCTION = {"type": "function", "function": {"name": "f"}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def calling(call: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def case(path: str, status: int, param: str | None, **body: Any) -> Any:
    return pytest.param(path, status, param, body, id=f"{path[-16:]} {str(body)[:60]}")


def both(param: str, *values: Any) -> list[Any]:
    """The same bad values of a parameter on both routes."""
    return [case(path, 400, param, **{param: value}) for path in (CHAT, TEXT) for value in values]


def schema_format(schema: Any) -> dict[str, Any]:
    """A response_format with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


BAD = [
    *both("temperature", -1, "hot", [], True, 1e9),
    *both("top_p", 0, -1, 1.5, "1"),
    *both("top_k", -2, 1.5, "all", True),
    *both("min_p", -0.1, 2),
    *both("n", 0, -1, 1.5, 1000, True),
    *both("max_tokens", -1, 0, "16", 2.5, 2**40, 10**400),
    *both("min_tokens", -1, "1", 2**31),
    *both("seed", 1.5, "7", 2**70),
    *both("stop", 5, [5], "", ["a"] * 65, "x" * 2000, {}),
    *both("stop_token_ids", 5, ["5"], [-1], [320]),
    *both("presence_penalty", 3, "x"),
    *both("frequency_penalty", -3),
    *both("repetition_penalty", 0, -1),
    *both(
        "logit_bias", [1], {"x": 1}, {"-1": 1}, {"5": "big"}, {"5": 200}, {"320": 1}, {"5": None}
    ),
    *both("stream", "yes", 1),
    *both("stream_options", True, {"include_usage": True}),
    *both("priority", "high", 2**40),
    *both("cache_salt", 5, "x" * 300),
    *both("ignore_eos", 1),
    *both("surprise", 1, None),
    *both("guided_json", 3),
    *both("bad_words", "x", [""], ["x"] * 257),
    *both("repetition_detection", 3, {"max_pattern_size": 3}, {"max_pattern_size": -1}),
    *both("spaces_between_special_tokens", False),
    *both("prompt_logprobs", -1, 21, True),
    *both("truncate_prompt_tokens", -2, 0, 1.5),
    *both("truncation_side", "middle"),
    *both("request_id", "", "a b", 5, "x" * 129),
    *both("return_token_ids", 1),
    *both("logprob_token_ids", [1], [320], "x", [-1], [1.5], list(range(1025))),
    *(
        case(path, 400, "logprob_token_ids", logprobs=given, logprob_token_ids=ids)
        for path, given in ((CHAT, True), (TEXT, 1))
        for ids in ([320], [-1])
    ),
    case(CHAT, 400, "logprob_token_ids", logprobs=False, logprob_token_ids=[1]),
    case(TEXT, 400, "logprob_token_ids", logprobs=1, logprob_token_ids=[1], echo=True),
    case(TEXT, 400, "logprob_token_ids", best_of=2, logprob_token_ids=[1]),
    *both("thinking_token_budget", 5),
    *both("watermarking", {"x": 1}),
    *(case(TEXT, 400, "best_of", best_of=value) for value in (0, 21, "2")),
    case(TEXT, 400, "best_of", best_of=3, stream=True),
    case(CHAT, 400, "best_of", best_of=2),
    case(TEXT, 400, "suffix", suffix="x"),
    case(TEXT, 400, "suffix", suffix="x", prompt=[65]),
    case(CHAT, 400, "suffix", suffix="x"),
    *(case(path, 400, "prompt_logprobs", prompt_logprobs=1, stream=True) for path in (CHAT, TEXT)),
    *both("guided_regex", 3, "(", "(?=a)b", "(" * 200),
    *both("guided_choice", "a", [], [1]),
    *both("guided_grammar", "", "start: nothing", "root ::= (", "x" * 200_000),
    *both("structured_outputs", {"regex": "a", "choice": ["b"]}, {}, {"json": 3}, {"xml": "a"}),
    *both("structured_outputs", {"structural_tag": {}}, {"json": "{"}, {"json": {"contains": 1}}),
    *both("response_format", "json", {"type": "xml"}, {"type": "structural_tag"}),
    *both("response_format", {"type": "json_schema"}, schema_format("x"), schema_format(False)),
    *both("response_format", schema_format({"properties": {"a": {"not": {}}}})),
    *both("response_format", schema_format({"enum": ["x" * 1000 + str(i) for i in range(200)]})),
    *both("allowed_token_ids", [], [320], "x", [-1]),
    *both("use_beam_search", True),
    *(case(path, 404, "model", model=name) for path in (CHAT, TEXT) for name in ("gpt-4", "")),
    *(
        case(path, 400, "model", model=name)
        for path in (CHAT, TEXT)
        for name in (5, ["tiny"], None)
    ),
    case(CHAT, 400, "messages", messages=None),
    case(CHAT, 400, "messages", messages=[]),
    case(CHAT, 400, "messages", messages="hi"),
    case(CHAT, 400, "messages", messages={"role": "user"}),
    case(CHAT, 400, "messages[0]", messages=["hi"]),
    case(CHAT, 400, "messages[0].role", messages=[{"content": "hi"}]),
    case(CHAT, 400, "messages[0].role", messages=[{"role": "robot", "content": "hi"}]),
    case(CHAT, 400, "messages[0].role", messages=[{"role": None, "content": "hi"}]),
    case(CHAT, 400, "messages[0].content", messages=[{"role": "user"}]),
    case(CHAT, 400, "messages[0].content", messages=[{"role": "user", "content": 5}]),
    case(
        CHAT,
        400,
        "messages[1].content[0].type",
        messages=[*USER, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
    ),
    case(CHAT, 400, "messages[0].audio", messages=[{**USER[0], "audio": {"id": "x"}}]),
    case(CHAT, 400, "messages", messages=[{"role": "user", "content": "long " * 2000}]),
    case(CHAT, 400, "messages", messages=USER, max_tokens=5000),
    case(CHAT, 400, "max_completion_tokens", max_completion_tokens=0),
    case(CHAT, 400, "top_logprobs", top_logprobs=2),
    case(CHAT, 400, "top_logprobs", logprobs=True, top_logprobs=21),
    case(CHAT, 400, "top_logprobs", logprobs=True, top_logprobs=-1),
    case(CHAT, 400, "logprobs", logprobs=1),
    case(CHAT, 400, "tools", tools={}),
    case(CHAT, 400, "tools[0].function", tools=[{"type": "function"}]),
    case(CHAT, 400, "tools[0].type", tools=[{"type": "web_search", "function": {"name": "f"}}]),
    case(CHAT, 400, "tools[0].function.name", tools=[named("no spaces")]),
    case(CHAT, 400, "tools[0].function.name", tools=[named("")]),
    case(CHAT, 400, "tools[1]", tools=[FUNCTION, FUNCTION]),
    case(CHAT, 400, "tools[0].function.parameters", tools=[function(type="array")]),
    case(CHAT, 400, "tool_choice", tools=[FUNCTION], tool_choice="sometimes"),
    case(CHAT, 400, "tool_choice", tools=[FUNCTION], tool_choice=named("g")),
    case(CHAT, 400, "tool_choice", tool_choice=named("f")),
    case(CHAT, 400, "parallel_tool_calls", parallel_tool_calls="no"),
    case(CHAT, 400, "functions", functions=[{"name": "f"}], tools=[FUNCTION]),
    case(CHAT, 400, "function_call", functions=[{"name": "f"}], function_call={"name": "g"}),
    case(CHAT, 400, "messages[0].tool_calls[0].function", messages=[calling({"id": "a"})]),
    case(CHAT, 400, "messages[0].tool_calls[0]", messages=[calling(5)]),
    case(CHAT, 400, "documents", documents=[{"text": "x"}]),
    case(CHAT, 400, "thinking_token_budget", thinking_token_budget=5),
    case(CHAT, 400, "chat_template_kwargs.tools", chat_template_kwargs={"tools": []}),
    case(
        CHAT,
        400,
        "continue_final_message",
        continue_final_message=True,
        add_generation_prompt=True,
    ),
    case(CHAT, 400, "tool_choice", tool_choice="required"),
    case(CHAT, 400, "reasoning_effort", reasoning_effort="high"),
    case(CHAT, 400, "modalities", modalities=["audio"]),
    case(CHAT, 400, "chat_template", chat_template="x"),
    case(CHAT, 400, "chat_template_kwargs", chat_template_kwargs=[1]),
    case(CHAT, 400, "messages", messages=[{"role": "user", "content": ""}], **GOES_ON),
    case(TEXT, 400, "tools", tools=[FUNCTION]),
    case(CHAT, 400, "prompt", prompt="hi"),
    case(TEXT, 400, "prompt", prompt=None),
    case(TEXT, 400, "prompt", prompt=""),
    case(TEXT, 400, "prompt", prompt=[]),
    case(TEXT, 400, "prompt", prompt=[[]]),
    case(TEXT, 400, "prompt", prompt=["ok", ""]),
    case(TEXT, 400, "prompt", prompt=5),
    case(TEXT, 400, "prompt", prompt={"text": "x"}),
    case(TEXT, 400, "prompt", prompt=[1, "a"]),
    case(TEXT, 400, "prompt", prompt=[True]),
    case(TEXT, 400, "prompt", prompt=[-1]),
    case(TEXT, 400, "prompt", prompt=[320]),
    case(TEXT, 400, "prompt", prompt=[2**40]),
    case(TEXT, 400, "prompt", prompt=[[65], [320]]),
    case(TEXT, 400, "prompt", prompt=["a"] * 300),
    case(TEXT, 400, "prompt", prompt="x" * 5000),
    case(TEXT, 400, "n", prompt=["a"] * 100, n=10),
    case(TEXT, 400, "logprobs", logprobs=True),
    case(TEXT, 400, "logprobs", logprobs=21),
    case(TEXT, 400, "logprobs", logprobs=-1),
    case(TEXT, 400, "echo", echo="yes"),
    case(TEXT, 400, "suffix", suffix="end"),
]


def check_error(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, checked for its shape."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert 0 < len(error["message"]) < 500
    return error


@pytest.fixture(autouse=True)
def still_answers(server: LiveServer) -> Any:
    """After each test the next good request is answered."""
    yield
    answer = server.complete("a", max_tokens=1)
    assert answer.status_code == 200


@pytest.mark.parametrize(("path", "status", "param", "body"), BAD)
def test_bad_field(
    server: LiveServer, path: str, status: int, param: str | None, body: dict[str, Any]
) -> None:
    good: dict[str, Any] = {"messages": USER} if path == CHAT else {"prompt": "a"}
    raw = json.dumps({"model": "tiny", **good, **body})
    answer = server.http.post(path, content=raw)
    error = check_error(answer, status)
    assert error["param"] == param
    assert param is None or param in error["message"] or "messages" in str(param) or status == 404
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"hello",
        b"[]",
        b'"text"',
        b"null",
        b"5",
        b'{"model": "tiny", "prompt": "a", "temperature": NaN}',
        b'{"model": "tiny", "prompt": "a", "temperature": Infinity}',
        b'{"model": "tiny", "prompt": "\xff"}',
        b'{"model": "tiny", "prompt": "a"} {}',
        b"model=tiny&prompt=a",
        b"[" * 100_000,
        b'{"prompt": ' + b"[" * 200 + b"]" * 200 + b"}",
        b"\x00" * 10,
    ],
    ids=lambda raw: repr(raw[:40]),
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_not_json(server: LiveServer, path: str, raw: bytes) -> None:
    error = check_error(server.http.post(path, content=raw), 400)
    assert error["code"] == "invalid_json"


def test_lone_surrogates_do_no_harm(server: LiveServer) -> None:
    raw = rb'{"model": "tiny", "prompt": "a\ud800b", "echo": true, "max_tokens": 1}'
    answer = server.http.post(TEXT, content=raw)
    assert answer.status_code in (200, 400)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_body_too_large(server: LiveServer, path: str) -> None:
    declared = server.http.post(path, content=b" " * (9 * 2**20))
    check_error(declared, 413)
    parts = (b" " * 2**20 for _ in range(9))
    answer = server.http.post(path, content=parts)  # chunked: no length is declared
    check_error(answer, 413)


@pytest.mark.parametrize(("path", "rest"), [(CHAT, {"messages": USER}), (TEXT, {"prompt": "a"})])
def test_model_is_required(server: LiveServer, path: str, rest: dict[str, Any]) -> None:
    error = check_error(server.http.post(path, json=rest), 400)
    assert error["param"] == "model"


def test_unknown_paths_and_methods(server: LiveServer) -> None:
    check_error(server.http.get("/v2/nothing"), 404)
    check_error(server.http.get(CHAT), 405)
    check_error(server.http.post("/v1/models", json={}), 405)


def test_errors_before_a_stream_keep_their_status(server: LiveServer) -> None:
    error = check_error(server.complete("x" * 5000, stream=True), 400)
    assert error["code"] == "context_length_exceeded"
