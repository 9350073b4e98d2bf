"""Tools and thinking through OpenAI's chat route, by raw HTTP and the official client.

The scripted model says what the last message asks it to say; under a grammar it says what comes
nearest. Longer than files should be: cases of one route, on the same few helpers and servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server
from tests.serving.tiny_model import TEMPLATE, write_tiny_model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
PARIS = '{"city": "Paris"}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>'
CALL_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def thinker(tiny_model: Path) -> Iterator[LiveServer]:
    """The scripted model as one that thinks, and takes templates from requests."""
    options = ServerOptions(
        served_model_names=(MODEL,), reasoning_parser="think", trust_request_chat_template=True
    )
    with live_server(tiny_model, server=options) as live:
        yield live


@pytest.fixture(scope="module")
def ponderer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The same with markers that are tokens."""
    folder = tmp_path_factory.mktemp("model") / "ponderer"
    model = write_tiny_model(folder, control=("<think>", "</think>"))
    options = ServerOptions(
        served_model_names=(MODEL,), reasoning_parser="think", trust_request_chat_template=True
    )
    with live_server(model, server=options) as live:
        yield live


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    control = ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")
    folder = tmp_path_factory.mktemp("model") / "mistral"
    options = ServerOptions(
        served_model_names=(MODEL,), tool_parser="mistral_args", reasoning_parser="mistral"
    )
    with live_server(write_tiny_model(folder, control=control), server=options) as live:
        yield live


@pytest.fixture(scope="module")
def harmony(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    names = ("channel", "message", "constrain", "end", "call", "return", "start")
    folder = tmp_path_factory.mktemp("model") / "harmony"
    control = tuple(f"<|{name}|>" for name in names)
    write_tiny_model(folder, control=control, template=TEMPLATE + "<|start|>assistant")
    options = ServerOptions(served_model_names=(MODEL,), tool_parser="harmony")
    with live_server(folder, server=options) as live:
        yield live


def say(answer: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"say:{answer}"}]


def post(server: LiveServer, answer: str, **body: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": say(answer), "temperature": 0, **body}
    return server.http.post("/v1/chat/completions", json=body)


def whole(server: LiveServer, answer: str, **body: Any) -> dict[str, Any]:
    reply = post(server, answer, **body)
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice


def deltas(server: LiveServer, answer: str, **body: Any) -> list[dict[str, Any]]:
    reply = post(server, answer, stream=True, **body)
    assert reply.status_code == 200, reply.text
    lines = [line for line in reply.text.split("\n\n") if line and "[DONE]" not in line]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    return [choice for chunk in chunks for choice in chunk["choices"]]


def joined(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of the chunks."""
    text, reasoning, calls = "", "", []
    for delta in (choice["delta"] for choice in choices):
        text += delta.get("content") or ""
        reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    return {
        "text": text,
        "reasoning": reasoning,
        "calls": calls,
        "finish_reason": choices[-1]["finish_reason"],
    }


def plain(choice: dict[str, Any]) -> dict[str, Any]:
    """A whole choice in the same shape."""
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return {
        "text": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": [[f["name"], f["arguments"]] for f in functions],
        "finish_reason": choice["finish_reason"],
    }


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        ("It is sunny.", "It is sunny.", []),
        (CALL, "", [["get_weather", PARIS]]),
        (
            f"Let me see.\n{CALL}\n{CALL_NOW}",
            "Let me see.",
            [["get_weather", PARIS], ["now", "{}"]],
        ),
        ("<tool_call>\nnonsense", "<tool_call>\nnonsense", []),
    ],
)
def test_answers_are_cut_into_text_and_calls(
    server: LiveServer, answer: str, text: str, calls: list[list[str]]
) -> None:
    found = plain(whole(server, answer, tools=TOOLS))
    reason = "tool_calls" if calls else "stop"
    assert found == {"text": text, "reasoning": "", "calls": calls, "finish_reason": reason}
    assert joined(deltas(server, answer, tools=TOOLS)) == found


def test_a_call_has_the_protocols_shape(server: LiveServer) -> None:
    message = whole(server, CALL, tools=TOOLS)["message"]
    [call] = message["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "get_weather", "arguments": PARIS}}
    assert message["content"] is None
    first = next(
        c["delta"] for c in deltas(server, CALL, tools=TOOLS) if "tool_calls" in c["delta"]
    )
    [opened] = first["tool_calls"]
    assert opened["index"] == 0
    assert opened["id"].startswith("call_")
    assert opened["type"] == "function"
    assert opened["function"]["name"] == "get_weather"


def test_arguments_come_in_pieces(server: LiveServer) -> None:
    choices = deltas(server, CALL, tools=TOOLS)
    pieces = [c["delta"]["tool_calls"][0] for c in choices if "tool_calls" in c["delta"]]
    assert len(pieces) > 5
    assert all(set(piece) == {"index", "function"} for piece in pieces[1:])


def test_calls_are_text_where_there_are_no_tools(server: LiveServer) -> None:
    for body in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        assert whole(server, CALL, **body)["message"]["content"] == CALL
        assert joined(deltas(server, CALL, **body))["text"] == CALL


def test_a_cut_off_call_ends_by_length(server: LiveServer) -> None:
    limit = CALL.index("Par") + 3
    found = plain(whole(server, CALL, tools=TOOLS, max_tokens=limit))
    assert found["calls"] == [["get_weather", '{"city": "Par']]
    assert found["finish_reason"] == "length"
    assert joined(deltas(server, CALL, tools=TOOLS, max_tokens=limit)) == found


def test_one_call_at_most(server: LiveServer) -> None:
    body = {"tools": TOOLS, "parallel_tool_calls": False}
    found = plain(whole(server, CALL + CALL_NOW, **body))
    assert found["calls"] == [["get_weather", PARIS]]
    assert joined(deltas(server, CALL + CALL_NOW, **body)) == found


@pytest.mark.parametrize("n", [1, 3])
def test_the_engine_stops_where_a_second_call_begins(slow_server: LiveServer, n: int) -> None:
    """The rest would take seconds."""
    body = {"tools": TOOLS, "parallel_tool_calls": False, "n": n, "max_tokens": 1500}
    answer = CALL + CALL_NOW * 15
    reply = post(slow_server, answer, **body).json()
    assert len(reply["choices"]) == n
    for choice in reply["choices"]:
        assert choice["finish_reason"] == "tool_calls"
        assert len(choice["message"]["tool_calls"]) == 1
    assert reply["usage"]["completion_tokens"] < n * len(answer)
    values = slow_server.wait_idle()
    assert values["octavo:kv_blocks_used"] == 0


def test_logprobs_of_calls_are_complete(server: LiveServer) -> None:
    body = {"tools": TOOLS, "logprobs": True}
    entries = whole(server, f"Ok {CALL}", **body)["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries).startswith(f"Ok {CALL}")
    streamed = deltas(server, f"Ok {CALL}", **body)
    shown = [e for c in streamed for e in (c["logprobs"] or {"content": []})["content"]]
    assert shown == entries


class TestForced:
    """The model would rather say something else, but must call."""

    def test_required(self, server: LiveServer) -> None:
        found = plain(whole(server, CALL_NOW, tools=TOOLS, tool_choice="required"))
        assert found["calls"] == [["now", "{}"]]
        refusing = plain(
            whole(server, "I would rather not.", tools=TOOLS, tool_choice="required", max_tokens=90)
        )
        assert refusing["text"] == ""
        assert refusing["calls"]

    def test_named(self, server: LiveServer) -> None:
        choice = {"type": "function", "function": {"name": "get_weather"}}
        found = plain(whole(server, CALL, tools=TOOLS, tool_choice=choice))
        assert found["calls"] == [["get_weather", PARIS]]
        other = plain(whole(server, CALL_NOW, tools=TOOLS, tool_choice=choice, max_tokens=60))
        assert [name for name, _ in other["calls"]] == ["get_weather"]

    def test_arguments_match_the_schema(self, server: LiveServer) -> None:
        wrong = CALL.replace('"Paris"', "5")
        found = plain(whole(server, wrong, tools=TOOLS, tool_choice="required", max_tokens=60))
        assert found["calls"][0][1].startswith('{"city": "')

    def test_allowed_tools(self, server: LiveServer) -> None:
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        found = plain(whole(server, CALL, tools=TOOLS, tool_choice=choice, max_tokens=80))
        assert {name for name, _ in found["calls"]} == {"now"}

    def test_streamed_as_whole(self, server: LiveServer) -> None:
        body = {"tools": TOOLS, "tool_choice": "required"}
        assert joined(deltas(server, CALL, **body)) == plain(whole(server, CALL, **body))

    def test_strict_tools_are_held_to_their_schema_in_free_text(self, server: LiveServer) -> None:
        strict = [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]  # type: ignore[dict-item]
        assert whole(server, "Just text.", tools=strict)["message"]["content"] == "Just text."
        answer = "Well. " + CALL.replace('"city"', '"town"')
        found = plain(whole(server, answer, tools=strict, max_tokens=90))
        assert found["text"] == "Well."
        assert found["calls"][0][1].startswith('{"city": "')

    def test_a_bad_schema_is_refused(self, server: LiveServer) -> None:
        bad = {"type": "object", "properties": {"a": {"contains": 5}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": bad}}
        reply = post(server, "hi", tools=[tool], tool_choice="required")
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "tools"
        assert "contains" in reply.json()["error"]["message"]

    def test_an_answer_in_json_leaves_room_for_calls(self, server: LiveServer) -> None:
        body = {"tools": TOOLS, "response_format": {"type": "json_object"}}
        assert plain(whole(server, '{"a": 1}', **body))["text"] == '{"a": 1}'
        assert plain(whole(server, CALL, **body))["calls"] == [["get_weather", PARIS]]


class TestThinking:
    ANSWER = "<think>\nHm.\n</think>\n\nYes."

    def test_is_told_from_text(self, thinker: LiveServer) -> None:
        choice = whole(thinker, self.ANSWER)
        assert choice["message"]["content"] == "Yes."
        assert choice["message"]["reasoning_content"] == "Hm."
        assert choice["message"]["reasoning"] == "Hm."
        assert joined(deltas(thinker, self.ANSWER)) == plain(choice)

    def test_tokens_are_counted(self, thinker: LiveServer) -> None:
        usage = post(thinker, self.ANSWER).json()["usage"]
        thought = usage["completion_tokens_details"]["reasoning_tokens"]
        assert len("\nHm.\n</think>") <= thought <= len("<think>\nHm.\n</think>")
        assert post(thinker, "Yes.").json()["usage"]["completion_tokens_details"] == {
            "reasoning_tokens": 0
        }

    def test_may_be_left_out(self, thinker: LiveServer) -> None:
        message = whole(thinker, self.ANSWER, include_reasoning=False)["message"]
        assert message["content"] == "Yes."
        assert "reasoning_content" not in message
        assert joined(deltas(thinker, self.ANSWER, include_reasoning=False))["reasoning"] == ""

    def test_then_a_call(self, thinker: LiveServer) -> None:
        answer = f"<think>Hm.</think>\n\n{CALL}"
        for choice in ("auto", "required"):
            body = {"tools": TOOLS, "tool_choice": choice}
            found = plain(whole(thinker, answer, **body))
            assert found["reasoning"] == "Hm."
            assert found["calls"] == [["get_weather", PARIS]]
            assert joined(deltas(thinker, answer, **body)) == found

    def test_then_json(self, thinker: LiveServer) -> None:
        answer = '<think>Hm { "</think>\n\n{"a": 1}'
        found = plain(whole(thinker, answer, response_format={"type": "json_object"}))
        assert found["reasoning"] == 'Hm { "'
        assert found["text"] == '{"a": 1}'

    def test_begun_in_the_prompt(self, thinker: LiveServer) -> None:
        template = "{{ messages[0].content }}\n<think>\n"
        message = whole(thinker, "x", chat_template=template, max_tokens=3)["message"]
        assert message["content"] is None
        assert message["reasoning"] == "?@A"

    def test_a_budget_ends_it(self, ponderer: LiveServer) -> None:
        """In the middle, wherever it comes from; what follows is an answer."""
        answer = "<think>abcdefgh</think>Yes."
        for budget, thought in ((0, ""), (3, "abc"), (8, "abcdefgh"), (99, "abcdefgh")):
            body = {"thinking_token_budget": budget, "max_tokens": 30}
            found = plain(whole(ponderer, answer, **body))
            assert found["reasoning"] == thought
            assert joined(deltas(ponderer, answer, **body)) == found
            usage = post(ponderer, answer, **body).json()["usage"]
            counted = usage["completion_tokens_details"]["reasoning_tokens"]
            assert counted == len(thought)
        begun = "say:x<|im_end|>\n{{ messages[0].content }}\n<think>"
        body = {"chat_template": begun, "max_tokens": 9, "thinking_token_budget": 4}
        message = whole(ponderer, "never mind", **body)["message"]
        assert len(message["reasoning"]) == 4

    def test_a_budget_and_a_grammar(self, ponderer: LiveServer) -> None:
        answer = '<think>abcdefgh</think>{"a": 1}'
        body = {"thinking_token_budget": 3, "response_format": {"type": "json_object"}}
        found = plain(whole(ponderer, answer, max_tokens=60, **body))
        assert found["reasoning"] == "abc"
        assert isinstance(json.loads(found["text"]), dict)

    def test_a_budget_needs_markers_that_are_tokens(self, thinker: LiveServer) -> None:
        reply = post(thinker, self.ANSWER, thinking_token_budget=3)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "thinking_token_budget"

    def test_effort_needs_a_model_that_thinks(
        self, thinker: LiveServer, server: LiveServer
    ) -> None:
        assert whole(thinker, self.ANSWER, reasoning_effort="low")["message"]["reasoning"] == "Hm."
        assert post(server, "x", reasoning_effort="low").status_code == 400
        assert post(server, "x", reasoning_effort="none").status_code == 200


def prompt_of(server: LiveServer, **body: Any) -> str:
    reply = server.http.post("/apply-template", json={"model": MODEL, **body})
    assert reply.status_code == 200, reply.text
    prompt: str = reply.json()["prompt"]
    return prompt


CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": PARIS},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."}


class TestControlTokens:
    """Models whose markers are control tokens, which answers do not show."""

    ANSWER = f"Well.[TOOL_CALLS]get_weather[ARGS]{PARIS}"

    @pytest.mark.parametrize("choice", ["auto", "required"])
    def test_calls_and_thoughts_are_found(self, mistral: LiveServer, choice: str) -> None:
        body = {"tools": TOOLS, "tool_choice": choice}
        answer = f"[THINK]Hm.[/THINK]{self.ANSWER.removeprefix('Well.')}"
        found = plain(whole(mistral, answer, **body))
        assert found["reasoning"] == "Hm."
        assert found["calls"] == [["get_weather", PARIS]]
        assert joined(deltas(mistral, answer, **body)) == found

    def test_other_control_tokens_stay_hidden(self, mistral: LiveServer) -> None:
        assert whole(mistral, "a<|270|>b")["message"]["content"] == "ab"
        assert plain(whole(mistral, self.ANSWER, tools=TOOLS))["text"] == "Well."

    def test_text_cannot_be_taken_for_a_token(self, mistral: LiveServer) -> None:
        """A grammar's marker is the token, not its spelling."""
        strict = [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]  # type: ignore[dict-item]
        found = plain(whole(mistral, self.ANSWER.replace("Paris", "Oslo"), tools=strict))
        assert found["calls"] == [["get_weather", '{"city": "Oslo"}']]


class TestHarmony:
    CALL = f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{PARIS}"
    THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"

    @pytest.mark.parametrize("choice", ["auto", "required"])
    def test_thoughts_and_calls(self, harmony: LiveServer, choice: str) -> None:
        body = {"tools": TOOLS, "tool_choice": choice}
        found = plain(whole(harmony, self.THOUGHT + self.CALL, **body))
        assert found["reasoning"] == "Hm."
        assert found["calls"] == [["get_weather", PARIS]]
        assert found["text"] == ""
        assert joined(deltas(harmony, self.THOUGHT + self.CALL, **body)) == found

    def test_json_on_the_final_channel(self, harmony: LiveServer) -> None:
        answer = self.THOUGHT + '<|channel|>final<|message|>{"a": 1}'
        found = plain(whole(harmony, answer, response_format={"type": "json_object"}))
        assert (found["reasoning"], found["text"]) == ("Hm.", '{"a": 1}')


class TestPrompt:
    def test_a_template_without_tools_gets_them_as_text(self, server: LiveServer) -> None:
        prompt = prompt_of(server, messages=[*say("x"), CALLED, RESULT], tools=TOOLS)
        assert '"name": "get_weather", "description": "Current weather."' in prompt
        assert CALL in prompt
        assert "<tool_response>\nSunny.\n</tool_response>" in prompt
        assert "<|im_start|>tool" not in prompt

    def test_no_tools_no_words_about_them(self, server: LiveServer) -> None:
        bare = prompt_of(server, messages=say("x"))
        assert prompt_of(server, messages=say("x"), tools=TOOLS, tool_choice="none") == bare
        assert "tool" not in bare

    def test_the_older_functions_are_the_same(self, server: LiveServer) -> None:
        function = WEATHER["function"]
        called = {"name": "get_weather", "arguments": PARIS}
        messages = [
            *say("x"),
            {"role": "assistant", "content": None, "function_call": called},
            {"role": "function", "name": "get_weather", "content": "Sunny."},
        ]
        assert prompt_of(server, messages=messages, functions=[function]) == prompt_of(
            server, messages=[*say("x"), CALLED, RESULT], tools=[WEATHER]
        )

    def test_the_older_functions_are_answered_in_their_shape(self, server: LiveServer) -> None:
        body = {"functions": [WEATHER["function"]], "function_call": {"name": "get_weather"}}
        choice = whole(server, CALL, **body)
        assert choice["message"]["function_call"] == {"name": "get_weather", "arguments": PARIS}
        assert choice["finish_reason"] == "function_call"
        streamed = deltas(server, CALL, **body)
        parts = [c["delta"]["function_call"] for c in streamed if "function_call" in c["delta"]]
        assert "".join(part["arguments"] for part in parts) == PARIS
        assert streamed[-1]["finish_reason"] == "function_call"

    def test_the_last_message_is_continued(self, server: LiveServer) -> None:
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "AB "}]
        body = {"messages": messages, "continue_final_message": True}
        assert prompt_of(server, **body).endswith("assistant\nAB ")
        answer = {"model": MODEL, "temperature": 0, "max_tokens": 3, **body}
        reply = server.http.post("/v1/chat/completions", json=answer)
        assert reply.json()["choices"][0]["message"]["content"] == '!"#'
        reply = server.http.post("/v1/chat/completions", json={**answer, "echo": True})
        assert reply.json()["choices"][0]["message"]["content"] == 'AB !"#'

    def test_templates_of_requests_only_where_they_are_trusted(
        self, thinker: LiveServer, server: LiveServer
    ) -> None:
        body = {"messages": say("x"), "chat_template": "<{{ messages[0].content }}>"}
        assert prompt_of(thinker, **body) == "<say:x>"
        reply = server.http.post("/apply-template", json={"model": MODEL, **body})
        assert reply.status_code == 400
        assert "--trust-request-chat-template" in reply.json()["error"]["message"]


class TestOfficialClient:
    def test_a_round_of_calls(self, openai_client: openai.OpenAI) -> None:
        messages: list[Any] = say(f"Ok.\n{CALL}\n{CALL_NOW}")
        answer = openai_client.chat.completions.create(
            model=MODEL,
            messages=messages,
            tools=TOOLS,
            temperature=0,  # type: ignore[arg-type]
        )
        message = answer.choices[0].message
        assert message.content == "Ok."
        assert [c.function.name for c in message.tool_calls or ()] == ["get_weather", "now"]  # type: ignore[union-attr]
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": f"say:{n}"}
            for n, call in enumerate(message.tool_calls or ())
        ]
        again = openai_client.chat.completions.create(
            model=MODEL,
            messages=[*messages, message, *results],
            tools=TOOLS,  # type: ignore[arg-type]
            temperature=0,
            max_tokens=1,
        )
        assert again.choices[0].message.content == "1"

    def test_the_stream_helper_puts_calls_together(self, openai_client: openai.OpenAI) -> None:
        with openai_client.chat.completions.stream(
            model=MODEL,
            messages=say(f"Ok.\n{CALL}\n{CALL_NOW}"),  # type: ignore[arg-type]
            tools=TOOLS,  # type: ignore[arg-type]
            temperature=0,
        ) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        assert "tool_calls.function.arguments.done" in kinds
        message = final.choices[0].message
        assert message.content == "Ok."
        assert [
            (call.function.name, call.function.arguments) for call in message.tool_calls or ()
        ] == [("get_weather", PARIS), ("now", "{}")]
        assert final.choices[0].finish_reason == "tool_calls"
