"""The gRPC services through a real channel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
pytest.importorskip("grpc_reflection", reason="grpcio-reflection is not installed")

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

from octavo.rpc import generation_pb2 as pb  # noqa: E402
from octavo.rpc import generation_pb2_grpc  # noqa: E402
from octavo.rpc import open_inference_pb2 as oip  # noqa: E402
from octavo.rpc import open_inference_pb2_grpc as oip_grpc  # noqa: E402
from octavo.serving import ServerOptions  # noqa: E402
from tests.serving.live_server import MODEL, LiveServer, live_server, wait_until  # noqa: E402
from tests.serving.tiny_model import END  # noqa: E402

KEY = (("authorization", "Bearer secret"),)


class Client:
    """Stubs on one channel."""

    def __init__(self, live: LiveServer, channel: Any) -> None:
        self.live = live
        self.generation = generation_pb2_grpc.GenerationStub(channel)
        self.inference = oip_grpc.GRPCInferenceServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)
        self.channel = channel

    def generate(self, **fields: Any) -> pb.GenerateResponse:
        return self.generation.Generate(request(**fields), timeout=20)

    def stream(self, **fields: Any) -> list[pb.GenerateChunk]:
        return list(self.generation.GenerateStream(request(**fields), timeout=20))


def request(prompt: str = "a", sampling: dict[str, Any] | None = None, **more: Any) -> Any:
    values = {"max_tokens": 5, "temperature": 0.0, **(sampling or {})}
    given = {} if "token_ids" in more or "conversation" in more else {"prompt": prompt}
    return pb.GenerateRequest(sampling=pb.Sampling(**values), **given, **more)


def serve(model: Path, backend: str = "fast", **options: Any) -> Iterator[Client]:
    settings = ServerOptions(served_model_names=(MODEL,), grpc_port=0, **options)
    with live_server(model, backend=backend, server=settings) as live:
        port = live.app.state.serving.rpc.port
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Client(live, channel)


@pytest.fixture(scope="module")
def client(tiny_model: Path) -> Iterator[Client]:
    yield from serve(tiny_model)


@pytest.fixture(scope="module")
def slow(tiny_model: Path) -> Iterator[Client]:
    yield from serve(tiny_model, "slow", api_keys=("secret", "other"))


def refusal(call: Any, *arguments: Any, **options: Any) -> Any:
    def use() -> None:
        answer = call(*arguments, **options)
        if hasattr(answer, "__next__"):
            list(answer)

    with pytest.raises(grpc.RpcError) as caught:
        use()
    return caught.value


def trailing(error: Any) -> dict[str, str]:
    return dict(error.trailing_metadata() or ())


def test_a_prompt(client: Client) -> None:
    answer = client.generate()
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == ("bcdef", "length")
    assert list(choice.token_ids) == [98, 99, 100, 101, 102]
    assert (answer.usage.prompt_tokens, answer.usage.output_tokens) == (1, 5)
    assert answer.model == MODEL
    assert answer.id.startswith("rpc-")


def test_token_ids(client: Client) -> None:
    assert client.generate(token_ids=pb.TokenIds(ids=[97])).choices[0].text == "bcdef"


def test_a_conversation(client: Client) -> None:
    talk = pb.Conversation(messages=[pb.Message(role="user", content="hi")])
    assert client.generate(conversation=talk).choices[0].text == "ABCDE"


def test_stream_equals_whole(client: Client) -> None:
    fields: dict[str, Any] = {"sampling": {"n": 3, "logprobs": 2, "max_tokens": 7}}
    whole, chunks = client.generate(**fields), client.stream(**fields)
    assert len(whole.choices) == 3
    for choice in whole.choices:
        own = [chunk for chunk in chunks if chunk.index == choice.index]
        assert "".join(chunk.text for chunk in own) == choice.text == "bcdefgh"
        assert [t for chunk in own for t in chunk.token_ids] == list(choice.token_ids)
        shown = [p for chunk in own for p in chunk.logprobs]
        assert shown == list(choice.logprobs)
        assert [p.candidates[0].token_id for p in shown] == list(choice.token_ids)
        assert own[-1].finish_reason == "length"
    assert [chunk.HasField("usage") for chunk in chunks].count(True) == 1
    assert chunks[-1].usage == whole.usage


def test_stop_reasons(client: Client) -> None:
    choice = client.generate(sampling={"stop": ["de"]}).choices[0]
    assert (choice.text, choice.finish_reason, choice.stop_string) == ("bc", "stop", "de")
    choice = client.generate(sampling={"stop_token_ids": [100]}).choices[0]
    assert (choice.text, choice.stop_token_id) == ("bc", 100)
    choice = client.generate(prompt="}", sampling={"max_tokens": 9}).choices[0]
    assert (choice.finish_reason, choice.WhichOneof("stop_reason")) == ("stop", None)
    assert choice.token_ids[-1] == END


def test_cancelling_frees_everything(slow: Client) -> None:
    call = slow.generation.GenerateStream(
        request(sampling={"max_tokens": 2000, "ignore_eos": True}), metadata=KEY
    )
    assert next(call).text
    slow.live.http.headers["Authorization"] = "Bearer secret"
    assert slow.live.metrics()["octavo:num_requests_running"] == 1
    call.cancel()
    slow.live.wait_idle()


def test_many_cancelled_streams_leave_a_server(slow: Client) -> None:
    """The ends of cancelled calls run when their calls are gone already."""
    for _ in range(40):
        fields = request(sampling={"max_tokens": 2000, "ignore_eos": True})
        calls = [slow.generation.GenerateStream(fields, metadata=KEY) for _ in range(4)]
        for call in calls[:2]:
            next(call)
        for call in calls:
            call.cancel()
    slow.live.http.headers["Authorization"] = "Bearer secret"
    slow.live.wait_idle()
    assert slow.generation.Generate(request(), metadata=KEY, timeout=20).choices[0].text == "bcdef"


def test_a_deadline_ends_the_call(slow: Client) -> None:
    slow.live.http.headers["Authorization"] = "Bearer secret"
    fields = request(sampling={"max_tokens": 2000, "ignore_eos": True})
    error = refusal(slow.generation.Generate, fields, timeout=0.3, metadata=KEY)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    slow.live.wait_idle()


def test_a_request_has_a_deadline_of_its_own(slow: Client) -> None:
    slow.live.http.headers["Authorization"] = "Bearer secret"
    fields = request(sampling={"max_tokens": 2000, "ignore_eos": True}, timeout_s=0.3)
    error = refusal(slow.generation.Generate, fields, timeout=60, metadata=KEY)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "deadline" in error.details()
    slow.live.wait_idle()


@pytest.mark.parametrize("with_keys", [False, True])
def test_users_are_tenants_where_keys_are_not(
    client: Client, slow: Client, with_keys: bool
) -> None:
    asked = slow if with_keys else client
    metadata = KEY if with_keys else ()
    with asked.live.engine_stopped():
        prompt = {"prompt": "a", "user": "anna"}
        talk = pb.Conversation(messages=[pb.Message(role="user", content="a")])
        calls = [
            asked.generation.Generate.future(request(**prompt), timeout=60, metadata=metadata),
            asked.generation.Generate.future(
                request(conversation=talk, user="anna"), timeout=60, metadata=metadata
            ),
        ]
        wait_until(lambda: asked.live.client.num_live == 2)
        live = list(asked.live.client._inflight._live.values())
        tenants = {one.request.tenant for one in live}
    assert all(call.result().choices for call in calls)
    assert ("anna" in tenants) is not with_keys
    assert len(tenants) == 1


def test_keys(slow: Client) -> None:
    for metadata in ((), (("authorization", "Bearer wrong"),), (("x-api-key", ""),)):
        for call, message in (
            (slow.generation.Generate, request()),
            (slow.generation.GenerateStream, request()),
            (slow.inference.ServerMetadata, oip.ServerMetadataRequest()),
            (slow.inference.ModelReady, oip.ModelReadyRequest(name=MODEL)),
        ):
            error = refusal(call, message, metadata=metadata, timeout=20)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    for metadata in (KEY, (("x-api-key", "other"),)):
        slow.generation.Generate(request(), metadata=metadata, timeout=20)
    assert slow.inference.ServerLive(oip.ServerLiveRequest()).live
    assert slow.health.Check(health_pb2.HealthCheckRequest()).status == 1


BAD: list[tuple[str, str | None, dict[str, Any]]] = [
    ("INVALID_ARGUMENT", "timeout_s", {"timeout_s": -1}),
    ("INVALID_ARGUMENT", "timeout_s", {"timeout_s": float("nan")}),
    ("INVALID_ARGUMENT", "timeout_s", {"timeout_s": 1e9}),
    ("INVALID_ARGUMENT", "lora", {"lora": "none"}),
    (
        "INVALID_ARGUMENT",
        "thinking_token_budget",
        {
            "conversation": pb.Conversation(
                messages=[pb.Message(role="user", content="x")], thinking_token_budget=5
            )
        },
    ),
    ("INVALID_ARGUMENT", "input", {"token_ids": None}),
    ("INVALID_ARGUMENT", "prompt", {"prompt": ""}),
    ("INVALID_ARGUMENT", "prompt", {"prompt": "x" * 5000}),
    ("INVALID_ARGUMENT", "prompt", {"token_ids": pb.TokenIds()}),
    ("INVALID_ARGUMENT", "prompt", {"token_ids": pb.TokenIds(ids=[320])}),
    ("INVALID_ARGUMENT", "token_ids", {"token_ids": pb.TokenIds(ids=[2**31])}),
    ("NOT_FOUND", "model", {"model": "gpt-4"}),
    ("INVALID_ARGUMENT", "n", {"sampling": {"n": 0}}),
    ("INVALID_ARGUMENT", "temperature", {"sampling": {"temperature": -1}}),
    ("INVALID_ARGUMENT", "temperature", {"sampling": {"temperature": float("nan")}}),
    ("INVALID_ARGUMENT", "top_p", {"sampling": {"top_p": float("inf")}}),
    ("INVALID_ARGUMENT", "stop", {"sampling": {"stop": [""]}}),
    ("INVALID_ARGUMENT", "stop_token_ids", {"sampling": {"stop_token_ids": [2**32 - 1]}}),
    ("INVALID_ARGUMENT", "logit_bias", {"sampling": {"logit_bias": {5: 1e9}}}),
    ("INVALID_ARGUMENT", "grammar", {"sampling": {"grammar": pb.Grammar(kind="poem")}}),
    ("INVALID_ARGUMENT", "first_token_timeout_s", {"first_token_timeout_s": -1}),
    ("INVALID_ARGUMENT", "messages", {"conversation": pb.Conversation()}),
    (
        "INVALID_ARGUMENT",
        "messages[0].role",
        {"conversation": pb.Conversation(messages=[pb.Message(role="robot")])},
    ),
    (
        "INVALID_ARGUMENT",
        "tool_choice",
        {
            "conversation": pb.Conversation(
                messages=[pb.Message(role="user", content="x")], tool_choice="f"
            )
        },
    ),
    (
        "INVALID_ARGUMENT",
        "tools[0].parameters_json",
        {
            "conversation": pb.Conversation(
                messages=[pb.Message(role="user", content="x")],
                tools=[pb.Tool(name="f", parameters_json="[")],
            )
        },
    ),
]


@pytest.mark.parametrize(("code", "param", "fields"), BAD)
def test_bad_requests(client: Client, code: str, param: str, fields: dict[str, Any]) -> None:
    for call in (client.generation.Generate, client.generation.GenerateStream):
        error = refusal(call, request(**fields), timeout=20)
        assert error.code().name == code, error
        assert trailing(error)["param"] == param
        assert error.details()


def test_bytes_that_are_no_message(client: Client) -> None:
    raw = client.channel.unary_unary("/octavo.v1.Generation/Generate")
    error = refusal(raw, b"\xff" * 50, timeout=20)
    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    assert client.generate().choices[0].text == "bcdef"
    assert refusal(raw, b"\x12" + b"x" * (9 << 20), timeout=20).code() is (
        grpc.StatusCode.RESOURCE_EXHAUSTED
    )
    assert client.generate().choices[0].text == "bcdef"


def test_open_inference_metadata(client: Client) -> None:
    inference = client.inference
    assert inference.ServerLive(oip.ServerLiveRequest()).live
    assert inference.ServerReady(oip.ServerReadyRequest()).ready
    assert inference.ModelReady(oip.ModelReadyRequest(name=MODEL, version="1")).ready
    assert not inference.ModelReady(oip.ModelReadyRequest(name="other")).ready
    assert inference.ServerMetadata(oip.ServerMetadataRequest()).name == "octavo"
    model = inference.ModelMetadata(oip.ModelMetadataRequest(name=MODEL))
    assert (model.name, list(model.versions)) == (MODEL, ["1"])
    assert [(t.name, t.datatype) for t in model.inputs] == [("text_input", "BYTES")]
    error = refusal(inference.ModelMetadata, oip.ModelMetadataRequest(name="other"))
    assert error.code() is grpc.StatusCode.NOT_FOUND


def infer(texts: list[bytes], raw: bool = False, **more: Any) -> oip.ModelInferRequest:
    tensor = oip.ModelInferRequest.InferInputTensor(
        name="text_input", datatype="BYTES", shape=[len(texts)]
    )
    message = oip.ModelInferRequest(model_name=MODEL, id="7", inputs=[tensor], **more)
    if raw:
        packed = b"".join(len(t).to_bytes(4, "little") + t for t in texts)
        message.raw_input_contents.append(packed)
    else:
        message.inputs[0].contents.bytes_contents.extend(texts)
    message.parameters["max_tokens"].int64_param = 3
    message.parameters["temperature"].double_param = 0
    return message


def test_infer(client: Client) -> None:
    answer = client.inference.ModelInfer(infer([b"a", b"k"]))
    outputs = {t.name: list(t.contents.bytes_contents) for t in answer.outputs}
    assert outputs == {"text_output": [b"bcd", b"lmn"], "finish_reason": [b"length"] * 2}
    assert answer.id == "7"
    raw = client.inference.ModelInfer(infer([b"a", b"k"], raw=True))
    assert raw.raw_output_contents[0] == b"\3\0\0\0bcd\3\0\0\0lmn"


BAD_INFER: list[tuple[str, Any]] = [
    ("inputs", infer([])),
    ("inputs", infer([b"\xff"])),
    ("inputs", infer([b"a"] * 300)),
    ("inputs", oip.ModelInferRequest(model_name=MODEL)),
    ("version", infer([b"a"], model_version="2")),
    ("text_input", infer([b""])),
    ("outputs", infer([b"a"], outputs=[{"name": "logits"}])),
]


@pytest.mark.parametrize(("param", "message"), BAD_INFER)
def test_bad_infer(client: Client, param: str, message: Any) -> None:
    error = refusal(client.inference.ModelInfer, message, timeout=20)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert trailing(error)["param"] == param


def test_bad_infer_details(client: Client) -> None:
    for raw in (b"\1", b"\5\0\0\0abc", b"\xff\xff\xff\xffa"):
        message = infer([b"a"], raw=True)
        message.raw_input_contents[0] = raw
        error = refusal(client.inference.ModelInfer, message, timeout=20)
        assert trailing(error)["param"] == "raw_input_contents"
    message = infer([b"a"])
    message.parameters["beams"].int64_param = 2
    assert trailing(refusal(client.inference.ModelInfer, message))["param"] == "beams"
    message = infer([b"a"])
    message.parameters["max_tokens"].string_param = "many"
    assert trailing(refusal(client.inference.ModelInfer, message))["param"] == "max_tokens"


def test_health_and_reflection(client: Client) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    ask = health_pb2.HealthCheckRequest
    for service in ("", "octavo.v1.Generation", "inference.GRPCInferenceService"):
        assert client.health.Check(ask(service=service)).status == 1
    assert refusal(client.health.Check, ask(service="x")).code() is grpc.StatusCode.NOT_FOUND
    watch = client.health.Watch(ask())
    assert next(watch).status == 1
    watch.cancel()
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    (answer,) = stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=20
    )
    names = {service.name for service in answer.list_services_response.service}
    assert {"octavo.v1.Generation", "inference.GRPCInferenceService"} < names


def test_it_says_that_it_loads(tiny_model: Path, tmp_path: Path) -> None:
    settings = ServerOptions(served_model_names=(MODEL,), grpc_port=0)
    with live_server(tiny_model, server=settings, wait=False) as live:
        port = live.app.state.serving.rpc.port
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            client = Client(live, channel)
            error = refusal(client.generation.Generate, request(), timeout=20)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert trailing(error)["retry-after"] == "1"
            watch = client.health.Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            end = time.monotonic() + 10
            while not client.inference.ServerReady(oip.ServerReadyRequest()).ready:
                assert time.monotonic() < end
            live.loop.call_soon_threadsafe(live.app.state.serving.drain_for, 60)
            rest = [answer.status for answer in watch]  # which ends, so that the server can
            assert rest == [health_pb2.HealthCheckResponse.NOT_SERVING]
            error = refusal(client.generation.Generate, request(), timeout=20)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
