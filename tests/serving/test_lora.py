"""Adapters over HTTP: chosen by model or field, listed, loaded and unloaded, kept over a crash."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server, wait_until
from tests.support.lora import write_adapter

Q = "model.layers.{}.self_attn.q_proj"
MODULES = {Q.format(0): (64, 64), "model.layers.1.mlp.down_proj": (64, 128)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapters for the tiny model, and one for another."""
    home = tmp_path_factory.mktemp("lora")
    made = {
        name: write_adapter(home / name, MODULES, seed=seed, size=1.0)
        for seed, name in enumerate(("poet", "judge", "later"))
    }
    return made | {"other": write_adapter(home / "other", {Q.format(0): (48, 48)})}


@pytest.fixture(scope="module")
def server(tiny_model: Path, folders: dict[str, Path]) -> Iterator[LiveServer]:
    """A real backend on the tiny model."""
    rpc = 0 if importlib.util.find_spec("grpc_reflection") else None
    options = ServerOptions(served_model_names=(MODEL,), lora_loading=True, grpc_port=rpc)
    lora = {name: str(folders[name]) for name in ("poet", "judge")}
    with live_server(
        tiny_model, backend="cpu", server=options, lora=lora, max_lora_rank=8, num_kv_blocks=32
    ) as live:
        yield live


def ids(server: LiveServer, model: str = MODEL, **body: Any) -> list[int]:
    body = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True} | body
    answer = server.http.post(
        "/v1/completions", json={"model": model, "prompt": list(range(97, 137)), **body}
    )
    assert answer.status_code == 200, answer.text
    found: list[int] = answer.json()["choices"][0]["token_ids"]
    return found


def test_chosen_by_model_or_field(server: LiveServer) -> None:
    base, poet, judge = ids(server), ids(server, "poet"), ids(server, "judge")
    assert len({tuple(base), tuple(poet), tuple(judge)}) == 3
    assert ids(server, lora="poet") == poet
    assert ids(server, "poet", lora="judge") == judge  # the field is the more particular
    assert ids(server) == base
    both = [ids(server, name) for name in ("judge", MODEL, "poet")]  # with what the cache holds
    assert both == [judge, base, poet]


def test_over_grpc(server: LiveServer) -> None:
    """The field and the model's name choose an adapter there too; an unknown one is refused."""
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    pytest.importorskip("grpc_reflection", reason="grpcio-reflection is not installed")
    from octavo.rpc import generation_pb2 as pb
    from octavo.rpc import generation_pb2_grpc

    def answer(**fields: Any) -> list[int]:
        sampling = pb.Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)
        prompt = pb.TokenIds(ids=range(97, 137))
        request = pb.GenerateRequest(sampling=sampling, token_ids=prompt, **fields)
        return list(stub.Generate(request, timeout=20).choices[0].token_ids)

    with grpc.insecure_channel(f"127.0.0.1:{server.app.state.serving.rpc.port}") as channel:
        stub = generation_pb2_grpc.GenerationStub(channel)
        assert answer() == ids(server)
        assert answer(lora="poet") == ids(server, "poet")
        assert answer(model="judge") == ids(server, "judge")
        with pytest.raises(grpc.RpcError) as caught:
            answer(lora="nobody")
        assert caught.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
        assert "nobody" in caught.value.details()


def test_every_protocol_takes_the_name(server: LiveServer) -> None:
    talk = [{"role": "user", "content": "hello there, tiny model"}]
    body = {"messages": talk, "max_tokens": 6, "temperature": 0}

    def chat(model: str) -> Any:
        answer = server.http.post("/v1/chat/completions", json={"model": model, **body})
        assert answer.json()["model"] == model
        return answer.json()["choices"][0]["message"]["content"]

    base, poet = chat(MODEL), chat("poet")
    assert base != poet
    message = server.http.post("/v1/messages", json={"model": "poet", **body}).json()
    assert "".join(part["text"] for part in message["content"]) == poet
    options = {"num_predict": 6, "temperature": 0}
    ollama = {"model": "poet", "messages": talk, "stream": False, "options": options}
    assert server.http.post("/api/chat", json=ollama).json()["message"]["content"] == poet
    ollama["model"] = MODEL
    assert server.http.post("/api/chat", json=ollama).json()["message"]["content"] == base
    response = {"model": "poet", "input": talk, "max_output_tokens": 6, "temperature": 0}
    output = server.http.post("/v1/responses", json=response).json()["output"]
    assert output[-1]["content"][0]["text"] == poet


def test_the_list_of_models(server: LiveServer, folders: dict[str, Path]) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        found = {model.id: model.model_dump() for model in client.models.list()}
    assert list(found) == [MODEL, "poet", "judge"]
    assert found["poet"]["parent"] == MODEL
    assert found["poet"]["root"] == str(folders["poet"])
    assert found[MODEL]["parent"] is None
    assert server.http.get("/v1/models/judge").json()["parent"] == MODEL
    tags = server.http.get("/api/tags").json()["models"]
    assert [tag["name"] for tag in tags] == ["tiny:latest", "poet:latest", "judge:latest"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nobody"}, 404, "model"),
        ({"model": MODEL, "lora": "nobody"}, 400, "lora"),
        ({"model": MODEL, "lora": 3}, 400, "lora"),
    ],
)
def test_an_unknown_adapter(
    server: LiveServer, body: dict[str, Any], status: int, param: str
) -> None:
    answer = server.http.post("/v1/completions", json={"prompt": [97], "max_tokens": 1, **body})
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def _load(server: LiveServer, name: str, path: object) -> httpx.Response:
    body = {"lora_name": name, "lora_path": str(path)}
    return server.http.post("/v1/load_lora_adapter", json=body)


def _unload(server: LiveServer, name: str) -> httpx.Response:
    return server.http.post("/v1/unload_lora_adapter", json={"lora_name": name})


def test_loading_and_unloading(server: LiveServer, folders: dict[str, Path]) -> None:
    answer = _load(server, "late", folders["later"])
    assert (answer.status_code, "'late' added" in answer.text) == (200, True)
    late = ids(server, "late")
    assert late not in (ids(server), ids(server, "poet"))
    os.kill(server.client.pid, signal.SIGKILL)
    wait_until(lambda: server.client.num_restarts == 1)
    server.wait_status(200)
    assert ids(server, "late") == late  # the next engine has it too
    assert _unload(server, "late").status_code == 200
    answer = server.http.post("/v1/completions", json={"model": "late", "prompt": [97]})
    assert answer.status_code == 404
    assert _load(server, "late", folders["judge"]).status_code == 200
    assert ids(server, "late") == ids(server, "judge")
    assert _unload(server, "late").status_code == 200


@pytest.mark.parametrize(
    ("name", "path", "status", "text"),
    [
        ("poet", "later", 400, "'poet' is loaded already"),
        (MODEL, "later", 400, "'tiny' is the model's"),
        ("new", "other", 400, "the adapter is for another base"),
        ("new", "nowhere", 400, "no such file"),
        ("", "later", 400, "lora_name"),
    ],
)
def test_what_cannot_be_loaded(
    server: LiveServer, folders: dict[str, Path], name: str, path: str, status: int, text: str
) -> None:
    answer = _load(server, name, folders.get(path, path))
    assert answer.status_code == status
    assert text in answer.json()["error"]["message"]
    assert _unload(server, "new").status_code == 404


def test_loading_is_off_unless_asked_for(tiny_model: Path, folders: dict[str, Path]) -> None:
    with live_server(tiny_model) as live:
        assert _load(live, "late", folders["later"]).status_code == 404
        assert ids(live)
