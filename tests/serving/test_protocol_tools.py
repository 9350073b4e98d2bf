"""Tools, thoughts and formats through the protocols that are not OpenAI's chat: their official
clients, unchanged, see the same calls whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import anthropic
import ollama
import openai
import pydantic
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ABOUT = {"name": "weather", "description": "Current weather."}
PARIS = {"city": "Paris"}
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(PARIS)}}}\n</tool_call>'
THOUGHT = "<think>\nHm.\n</think>\n\nYes."
ANSWER = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
ANSWER |= {"additionalProperties": False}


@pytest.fixture(scope="module")
def thinker(tiny_model: Path) -> Iterator[LiveServer]:
    """The scripted model as one that thinks."""
    options = ServerOptions(served_model_names=(MODEL,), reasoning_parser="think")
    with live_server(tiny_model, server=options) as live:
        yield live


def say(answer: str) -> list[Any]:
    return [{"role": "user", "content": f"say:{answer}"}]


class TestAnthropic:
    TOOL: ClassVar[Any] = {**ABOUT, "input_schema": SCHEMA}

    def ask(self, server: LiveServer, answer: str, **more: Any) -> anthropic.types.Message:
        """The message, which a stream adds up to."""
        with anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0) as client:
            asked: Any = {"model": MODEL, "max_tokens": 2000, "messages": say(answer), **more}
            asked["extra_body"] = {"temperature": 0}
            message: anthropic.types.Message = client.messages.create(**asked)
            with client.messages.stream(**asked) as stream:
                final = stream.get_final_message()
        assert final.stop_reason == message.stop_reason
        shown = [self.plain(block.model_dump()) for block in final.content]
        assert shown == [self.plain(block.model_dump()) for block in message.content]
        return message

    def plain(self, block: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in block.items() if k not in ("id", "parsed_output")}

    def test_a_call_and_its_result(self, server: LiveServer) -> None:
        message = self.ask(server, f"Let me see.{CALL}", tools=[self.TOOL])
        text, call = message.content
        assert text.type == "text"
        assert text.text.strip() == "Let me see."
        assert call.type == "tool_use"
        assert call.id.startswith("toolu_")
        assert (call.name, call.input, message.stop_reason) == ("weather", PARIS, "tool_use")
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        more = [*say(CALL), {"role": "assistant", "content": message.content}]
        more.append({"role": "user", "content": [result, {"type": "text", "text": "say:Nice."}]})
        after = self.ask(server, "", tools=[self.TOOL], messages=more)
        assert after.content[0].type == "text"
        assert after.content[0].text == "Nice."

    @pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
    def test_calls_can_be_forced(self, server: LiveServer, choice: dict[str, Any]) -> None:
        message = self.ask(server, CALL, tools=[self.TOOL], tool_choice=choice)
        (call,) = message.content
        assert call.type == "tool_use"
        assert call.input == PARIS

    def test_parallel_calls_can_be_switched_off(self, server: LiveServer) -> None:
        both = self.ask(server, f"{CALL}\n{CALL}", tools=[self.TOOL])
        assert [block.type for block in both.content] == ["tool_use", "tool_use"]
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        one = self.ask(server, f"{CALL}\n{CALL}", tools=[self.TOOL], tool_choice=choice)
        assert len(one.content) == 1

    def test_thoughts(self, thinker: LiveServer, server: LiveServer) -> None:
        asked: Any = {"type": "enabled", "budget_tokens": 1024}
        message = self.ask(thinker, THOUGHT, thinking=asked)
        thought, text = message.content
        assert thought.type == "thinking"
        assert thought.thinking.strip() == "Hm."
        assert thought.signature
        assert text.type == "text"
        assert text.text.strip() == "Yes."
        details = message.usage.output_tokens_details
        assert details is not None
        assert details.thinking_tokens > 0
        hidden = self.ask(thinker, THOUGHT, thinking={**asked, "display": "omitted"}).content[0]
        assert hidden.type == "thinking"
        assert hidden.thinking == ""
        more: Any = [*say(THOUGHT), {"role": "assistant", "content": message.content}]
        self.ask(thinker, "", messages=[*more, *say("Good.")])
        with pytest.raises(anthropic.BadRequestError, match="thinking"):
            self.ask(server, THOUGHT, thinking=asked)

    def test_a_schema(self, server: LiveServer) -> None:
        config = {"format": {"type": "json_schema", "schema": ANSWER}}
        message = self.ask(server, "whatever", output_config=config)
        assert message.content[0].type == "text"
        assert json.loads(message.content[0].text) == {"a": 1}

    def test_the_answer_goes_on_from_the_last_message(self, server: LiveServer) -> None:
        more = [*say("abcdef"), {"role": "assistant", "content": "abc"}]
        message = self.ask(server, "", messages=more)
        assert message.content[0].type == "text"
        assert message.content[0].text == "def"


class TestResponses:
    TOOL: ClassVar[Any] = {"type": "function", **ABOUT, "parameters": SCHEMA, "strict": True}

    def ask(self, server: LiveServer, answer: str, **more: Any) -> Any:
        """The response, which a stream adds up to."""
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            asked: Any = {"model": MODEL, "input": say(answer), "temperature": 0, **more}
            response = client.responses.create(**asked)
            with client.responses.stream(**asked) as stream:
                final = stream.get_final_response()
        assert self.plain(final) == self.plain(response)
        return response

    def plain(self, response: Any) -> list[dict[str, Any]]:
        changing = ("id", "call_id", "parsed_arguments", "parsed")
        items = [item.model_dump() for item in response.output]
        plain = [{k: v for k, v in item.items() if k not in changing} for item in items]
        for item in plain:
            for part in item.get("content") or []:
                part.pop("parsed", None)
        return plain

    def test_a_call_and_its_result(self, server: LiveServer) -> None:
        response = self.ask(server, CALL, tools=[self.TOOL])
        (call,) = response.output
        assert (call.type, call.name, json.loads(call.arguments)) == (
            "function_call",
            "weather",
            PARIS,
        )
        assert response.status == "completed"
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        given = {"previous_response_id": response.id, "tools": [self.TOOL]}
        after = self.ask(server, "", input=[result, *say("Nice.")], **given)
        assert after.output_text == "Nice."
        sent_back = [*say(CALL), call.to_dict(), result, *say("Nice.")]
        stateless = self.ask(server, "", input=sent_back, tools=[self.TOOL])
        assert stateless.usage.input_tokens == after.usage.input_tokens

    @pytest.mark.parametrize(
        "choice",
        [
            "required",
            {"type": "function", "name": "weather"},
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "weather"}],
            },
        ],
        ids=str,
    )
    def test_calls_can_be_forced(self, server: LiveServer, choice: Any) -> None:
        tools = [self.TOOL, {"type": "function", "name": "other", "parameters": {}}]
        response = self.ask(server, CALL, tools=tools, tool_choice=choice)
        assert [item.name for item in response.output] == ["weather"]

    def test_thoughts(self, thinker: LiveServer) -> None:
        response = self.ask(thinker, THOUGHT, include=["reasoning.encrypted_content"])
        thought, message = response.output
        assert thought.type == "reasoning"
        assert thought.content[0].text.strip() == "Hm."
        assert message.content[0].text.strip() == "Yes."
        assert response.usage.output_tokens_details.reasoning_tokens > 0
        summed = self.ask(thinker, THOUGHT, reasoning={"summary": "auto"}).output[0]
        assert summed.summary[0].text.strip() == "Hm."
        opaque = {k: v for k, v in thought.to_dict().items() if k != "content"}
        spoken = {"role": "assistant", "content": message.content[0].text}
        for item in (thought.to_dict(), opaque):
            self.ask(thinker, "", input=[*say(THOUGHT), item, spoken, *say("Good.")])
        forged = {**opaque, "encrypted_content": "?"}
        with pytest.raises(openai.BadRequestError, match="encrypted_content"):
            self.ask(thinker, "", input=[*say(THOUGHT), forged, *say("Good.")])

    def test_a_schema(self, server: LiveServer) -> None:
        form = {"type": "json_schema", "name": "a", "schema": ANSWER, "strict": True}
        assert json.loads(self.ask(server, "x", text={"format": form}).output_text) == {"a": 1}
        free = self.ask(server, '{"b": 2}', text={"format": {"type": "json_object"}})
        assert json.loads(free.output_text) == {"b": 2}
        bad = {**form, "schema": {"type": "nonsense"}}
        with pytest.raises(openai.BadRequestError, match=r"text\.format\.schema"):
            self.ask(server, "x", text={"format": bad})

    def test_parsed_answers(self, server: LiveServer) -> None:
        class Found(pydantic.BaseModel):
            a: int

        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            parsed = client.responses.parse(
                model=MODEL, input=say('{"a": 5}'), text_format=Found, temperature=0
            )
        assert parsed.output_parsed == Found(a=5)


class TestOllama:
    TOOL: ClassVar[Any] = {"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}

    def ask(self, server: LiveServer, answer: str, **more: Any) -> ollama.Message:
        """The message, which a stream adds up to."""
        asked: Any = {"model": MODEL, "messages": say(answer), **more}
        asked["options"] = {"temperature": 0}
        with ollama.Client(host=server.url) as client:
            message: ollama.Message = client.chat(**asked).message
            pieces = [piece.message for piece in client.chat(**asked, stream=True)]
        for name in ("content", "thinking"):
            joined = "".join(getattr(piece, name) or "" for piece in pieces)
            assert joined == (getattr(message, name) or "")
        calls = [call for piece in pieces for call in piece.tool_calls or ()]
        assert [c.function for c in calls] == [c.function for c in message.tool_calls or ()]
        return message

    def test_a_call_and_its_result(self, server: LiveServer) -> None:
        message = self.ask(server, CALL, tools=[self.TOOL])
        assert message.tool_calls
        assert message.tool_calls[0].function.name == "weather"
        assert message.tool_calls[0].function.arguments == PARIS
        result: Any = {"role": "tool", "tool_name": "weather", "content": "sunny"}
        more = [*say(CALL), message, result, *say("Nice.")]
        assert self.ask(server, "", messages=more, tools=[self.TOOL]).content == "Nice."

    def test_thoughts(self, thinker: LiveServer, server: LiveServer) -> None:
        message = self.ask(thinker, THOUGHT, think=True)
        assert (message.thinking or "").strip() == "Hm."
        assert (message.content or "").strip() == "Yes."
        self.ask(thinker, "", messages=[*say(THOUGHT), message, *say("Good.")])
        with ollama.Client(host=thinker.url) as client:
            made = client.generate(MODEL, f"say:{THOUGHT}", think="high")
        assert (made.thinking or "").strip() == "Hm."
        with pytest.raises(ollama.ResponseError, match="think"):
            self.ask(server, THOUGHT, think=True)

    def test_formats(self, server: LiveServer) -> None:
        assert json.loads(self.ask(server, "x", format=ANSWER).content or "") == {"a": 1}
        assert json.loads(self.ask(server, '{"b": 2}', format="json").content or "") == {"b": 2}
        with pytest.raises(ollama.ResponseError, match="format"):
            self.ask(server, "x", format={"type": "nonsense"})
