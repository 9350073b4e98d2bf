"""OpenAI responses, by raw HTTP and through the official client."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import LiveServer, live_server

INPUT = "say:Hello there"


def post(server: LiveServer, path: str = "/v1/responses", **body: Any) -> httpx.Response:
    return server.http.post(path, json={"model": "tiny", "input": INPUT, **body})


def events(server: LiveServer, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, checked for their frame and numbers."""
    answer = post(server, stream=True, **body)
    assert answer.status_code == 200, answer.text
    *blocks, end = answer.text.split("\n\n")
    assert end == ""
    found = []
    for block in blocks:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def plain(response: dict[str, Any]) -> Any:
    """A response without what differs from one to the next."""
    output = [{k: v for k, v in item.items() if k != "id"} for item in response["output"]]
    changing = {"id", "created_at", "completed_at", "usage"}
    return {**{k: v for k, v in response.items() if k not in changing}, "output": output}


def test_response_has_the_protocols_shape(server: LiveServer) -> None:
    response = post(server, metadata={"a": "b"}, temperature=0, instructions="Be kind.").json()
    assert response["id"].startswith("resp_")
    assert (response["object"], response["status"]) == ("response", "completed")
    (item,) = response["output"]
    assert item["id"].startswith("msg_")
    assert item["content"] == [
        {"type": "output_text", "text": "Hello there", "annotations": [], "logprobs": []}
    ]
    assert (item["role"], item["status"], item["type"]) == ("assistant", "completed", "message")
    usage = response["usage"]
    assert usage["output_tokens"] == len("Hello there") + 1
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert response["metadata"] == {"a": "b"}
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert response["instructions"] == "Be kind."


def test_events_come_in_order(server: LiveServer) -> None:
    found = events(server, input="say:abc")
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * 3,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert "".join(event["delta"] for event in found if "delta" in event) == "abc"
    assert len({event["item_id"] for event in found if "item_id" in event}) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"max_output_tokens": 4},
        {"stop": ["th"], "temperature": 0.5, "seed": 3},
        {"top_logprobs": 2},
        {"include": ["message.output_text.logprobs"]},
        {"input": "say:"},
        {"input": [{"role": "user", "content": "say:a"}, {"role": "developer", "content": "b"}]},
    ],
    ids=str,
)
def test_a_stream_adds_up_to_the_whole(server: LiveServer, body: dict[str, Any]) -> None:
    whole = post(server, **body).json()
    found = events(server, **body)
    assert plain(found[-1]["response"]) == plain(whole)
    assert found[-1]["type"] == f"response.{whole['status']}"
    text = "".join(e["delta"] for e in found if e["type"] == "response.output_text.delta")
    assert text == whole["output"][0]["content"][0]["text"]
    shown = [e for x in found if "delta" in x for e in x["logprobs"]]
    assert shown == whole["output"][0]["content"][0]["logprobs"]
    assert bool(shown) == ("top_logprobs" in body or "include" in body)


def test_a_limit_makes_a_response_incomplete(server: LiveServer) -> None:
    response = post(server, max_output_tokens=4).json()
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"


def test_responses_can_be_gone_on_from(server: LiveServer) -> None:
    first = post(server, instructions="Not carried over.").json()
    second = post(server, input="say:second", previous_response_id=first["id"]).json()
    assert second["output"][0]["content"][0]["text"] == "second"
    counted = post(
        server,
        "/v1/responses/input_tokens",
        input=[
            {"role": "user", "content": INPUT},
            {"role": "assistant", "content": "Hello there"},
            {"role": "user", "content": "say:second"},
        ],
    ).json()
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": second["usage"]["input_tokens"],
    }
    streamed = events(server, input="say:x", previous_response_id=second["id"])[-1]["response"]
    assert streamed["usage"]["input_tokens"] > second["usage"]["input_tokens"]
    lost = post(server, previous_response_id="resp_x")
    assert (lost.status_code, lost.json()["error"]["code"]) == (400, "previous_response_not_found")


def test_responses_are_kept_until_they_are_deleted(server: LiveServer) -> None:
    made = post(server, input=[{"role": "user", "content": INPUT, "type": "message"}]).json()
    path = f"/v1/responses/{made['id']}"
    assert server.http.get(path).json() == made
    items = server.http.get(f"{path}/input_items").json()
    assert items["data"][0]["content"] == [{"type": "input_text", "text": INPUT}]
    assert items["first_id"] == items["last_id"] == items["data"][0]["id"]
    assert not items["has_more"]
    assert server.http.delete(path).json() == {
        "id": made["id"],
        "object": "response",
        "deleted": True,
    }
    for method in ("GET", "DELETE"):
        assert server.http.request(method, path).status_code == 404
    gone = post(server, store=False).json()
    assert server.http.get(f"/v1/responses/{gone['id']}").status_code == 404


def test_work_in_the_background(slow_server: LiveServer) -> None:
    server = slow_server
    queued = post(server, background=True, input="say:" + "x" * 40).json()
    assert queued["status"] == "queued"
    path = f"/v1/responses/{queued['id']}"
    end = time.monotonic() + 10
    while (found := server.http.get(path).json())["status"] in ("queued", "in_progress"):
        assert time.monotonic() < end
    assert found["output"][0]["content"][0]["text"] == "x" * 40
    assert server.http.post(f"{path}/cancel").status_code == 400
    running = post(server, background=True, input="say:" + "x" * 400).json()
    path = f"/v1/responses/{running['id']}"
    assert server.http.post(f"{path}/cancel").json()["status"] == "cancelled"
    assert server.http.post(f"{path}/cancel").json()["status"] == "cancelled"
    server.wait_idle()
    assert server.http.get(path).json()["status"] == "cancelled"
    started = post(server, background=True, input="say:" + "x" * 400).json()
    assert server.http.delete(f"/v1/responses/{started['id']}").json()["deleted"]
    server.wait_idle()


def test_what_cannot_be_admitted_fails_in_the_background(server: LiveServer) -> None:
    made = post(server, background=True, input="long " * 2000).json()
    end = time.monotonic() + 10
    while (found := server.http.get(f"/v1/responses/{made['id']}").json())["status"] == "queued":
        assert time.monotonic() < end
    assert (found["status"], found["error"]["code"]) == ("failed", "context_length_exceeded")


def test_truncation_drops_the_oldest_turns(server: LiveServer) -> None:
    items = [
        *({"role": "user", "content": "long " * 300}, {"role": "assistant", "content": "a"}) * 4,
        {"role": "user", "content": "say:fits"},
    ]
    assert post(server, input=items).status_code == 400
    response = post(server, input=items, truncation="auto", instructions="kept").json()
    assert response["output"][0]["content"][0]["text"] == "fits"
    assert 2 * 1500 < response["usage"]["input_tokens"] < 3 * 1500
    one = post(server, input="say:" + "x" * 5000, truncation="auto")
    assert one.status_code == 400


BAD = [
    ("input", {"input": None}),
    ("input", {"input": []}),
    ("input", {"input": 5}),
    ("input[0].type", {"input": [{"type": "image"}]}),
    ("input[0].role", {"input": [{"role": "robot", "content": "x"}]}),
    ("input[0].content[0].type", {"input": [{"role": "user", "content": [{"type": "x"}]}]}),
    (
        "input[0].call_id",
        {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
    ),
    ("max_output_tokens", {"max_output_tokens": 0}),
    ("temperature", {"temperature": -1}),
    ("top_p", {"top_p": 7}),
    ("top_logprobs", {"top_logprobs": 21}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tool_choice": {"type": "function", "name": "x"}}),
    ("tools[0].type", {"tools": [{"type": "web_search"}]}),
    ("text.format", {"text": {"format": {"type": "xml"}}}),
    ("text.verbosity", {"text": {"verbosity": "high"}}),
    ("reasoning.effort", {"reasoning": {"effort": "huge"}}),
    ("truncation", {"truncation": "sometimes"}),
    ("include", {"include": ["everything"]}),
    ("metadata", {"metadata": {"a": 5}}),
    ("metadata", {"metadata": {str(i): "" for i in range(17)}}),
    ("stream_options", {"stream_options": {}}),
    ("background", {"background": True, "stream": True}),
    ("background", {"background": True, "store": False}),
    ("conversation", {"conversation": "conv_1"}),
    ("prompt", {"prompt": {"id": "x"}}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
    ("surprise", {"surprise": 1}),
]


@pytest.mark.parametrize(("field", "body"), BAD, ids=str)
def test_bad_requests_name_the_field(server: LiveServer, field: str, body: dict[str, Any]) -> None:
    answer = post(server, **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith(field)
    assert field in answer.json()["error"]["message"]


def test_bad_queries_name_the_parameter(server: LiveServer) -> None:
    path = f"/v1/responses/{post(server).json()['id']}"
    for query, name in [
        ("/input_items?limit=0", "limit"),
        ("/input_items?limit=x", "limit"),
        ("/input_items?order=up", "order"),
        ("/input_items?after=x", "after"),
        ("?stream=true", "stream"),
    ]:
        answer = server.http.get(path + query)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_official_client(openai_client: openai.OpenAI) -> None:
    response = openai_client.responses.create(model="tiny", input=INPUT)
    assert response.output_text == "Hello there"
    with openai_client.responses.stream(model="tiny", input=INPUT) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "Hello there"
    assert kinds[-1] == "response.completed"
    more = openai_client.responses.create(
        model="tiny", input="say:more", previous_response_id=response.id, stream=True
    )
    assert [event.type for event in more][-1] == "response.completed"
    assert openai_client.responses.retrieve(response.id).output_text == "Hello there"
    assert [item.type for item in openai_client.responses.input_items.list(response.id)] == [
        "message"
    ]
    assert openai_client.responses.input_tokens.count(model="tiny", input=INPUT).input_tokens > 0
    openai_client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError, match="top_p"):
        openai_client.responses.create(model="tiny", input=INPUT, top_p=7)


async def test_official_async_client(server: LiveServer) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client,
        client.responses.stream(model="tiny", input=INPUT) as stream,
    ):
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Hello there"


def test_stored_responses_survive_a_restart(tiny_model: Path, tmp_path: Path) -> None:
    options = ServerOptions(served_model_names=("tiny",), data_dir=str(tmp_path))
    with live_server(tiny_model, server=options) as first:
        made = first.http.post("/v1/responses", json={"model": "tiny", "input": INPUT}).json()
        items = first.http.get(f"/v1/responses/{made['id']}/input_items").json()
    with live_server(tiny_model, server=options) as second:
        path = f"/v1/responses/{made['id']}"
        assert second.http.get(path).json() == made
        assert second.http.get(f"{path}/input_items").json() == items
        body = {"model": "tiny", "input": "say:more", "previous_response_id": made["id"]}
        more = second.http.post("/v1/responses", json=body).json()
        assert more["output"][0]["content"][0]["text"] == "more"
        assert more["usage"]["input_tokens"] > made["usage"]["total_tokens"]
        second.http.delete(path)
    with live_server(tiny_model, server=options) as third:
        assert third.http.get(path).status_code == 404
        assert third.http.get(f"/v1/responses/{more['id']}").json() == more
