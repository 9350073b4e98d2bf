"""/tokenize, /detokenize, /apply-template and /tokenizer_info say what the engine would run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.live_server import LiveServer
from tests.serving.tiny_model import END, START, TEMPLATE, VOCAB_SIZE

USER = [{"role": "user", "content": "hi"}]
RENDERED = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def post(server: LiveServer, path: str, **body: Any) -> dict[str, Any]:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_tokenize_a_prompt(server: LiveServer) -> None:
    found = post(server, "/tokenize", model="tiny", prompt="aé", return_token_strs=True)
    assert found["tokens"] == [97, 0xC3, 0xA9]
    assert found["count"] == 3
    assert found["max_model_len"] == 4096
    assert found["token_strs"] == ["a", "�", "�"]


def test_control_tokens_may_be_meant_or_not(server: LiveServer) -> None:
    text = "<|im_end|>"
    assert post(server, "/tokenize", prompt=text)["tokens"] == [END]
    literal = post(server, "/tokenize", prompt=text, parse_special=False)["tokens"]
    assert literal == list(text.encode())


def test_tokenize_a_conversation_counts_what_a_chat_runs(server: LiveServer) -> None:
    found = post(server, "/tokenize", messages=USER)
    answer = post(server, "/v1/chat/completions", model="tiny", messages=USER, max_tokens=1)
    assert found["count"] == answer["usage"]["prompt_tokens"] == len(found["tokens"])
    assert found["tokens"][0] == START
    bare = post(server, "/tokenize", messages=USER, add_generation_prompt=False)
    assert bare["tokens"] == found["tokens"][: bare["count"]]


def test_llama_cpp_shapes(server: LiveServer) -> None:
    assert post(server, "/tokenize", content="ab") == {"tokens": [97, 98]}
    pieces = post(server, "/tokenize", content="aé", with_pieces=True)["tokens"]
    assert pieces == [
        {"id": 97, "piece": "a"},
        {"id": 0xC3, "piece": [0xC3]},
        {"id": 0xA9, "piece": [0xA9]},
    ]


@pytest.mark.parametrize(
    "text", ["", "hello", "\n a  b\t", "汉字 and 🙂", "<|im_start|>x<|im_end|>"]
)
def test_round_trip(server: LiveServer, text: str) -> None:
    tokens = post(server, "/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    assert post(server, "/detokenize", tokens=tokens) == {"prompt": text, "content": text}


def test_detokenize_can_skip_special_tokens(server: LiveServer) -> None:
    shown = post(server, "/detokenize", tokens=[START, 97, END], skip_special_tokens=True)
    assert shown["prompt"] == "a"


def test_apply_template(server: LiveServer) -> None:
    assert post(server, "/apply-template", messages=USER) == {"prompt": RENDERED}


def test_tokenizer_info(server: LiveServer) -> None:
    info = server.http.get("/tokenizer_info").json()
    assert info["eos_token"] == "<|im_end|>"
    assert info["eos_token_id"] == END
    assert info["chat_template"] == TEMPLATE
    assert info["vocab_size"] == VOCAB_SIZE
    assert info["model_max_length"] == 4096


BAD: list[tuple[str, int, str | None, dict[str, Any]]] = [
    ("/tokenize", 400, "prompt", {}),
    ("/tokenize", 400, "prompt", {"prompt": 5}),
    ("/tokenize", 400, "prompt", {"prompt": ["a"]}),
    ("/tokenize", 400, "content", {"content": [1]}),
    ("/tokenize", 400, "add_special_tokens", {"prompt": "a", "add_special_tokens": "yes"}),
    ("/tokenize", 400, "add_special_tokens", {"messages": USER, "add_special_tokens": 1}),
    ("/tokenize", 400, "return_token_strs", {"messages": USER, "return_token_strs": "x"}),
    ("/tokenize", 400, "surprise", {"prompt": "a", "surprise": 1}),
    ("/tokenize", 400, "messages", {"messages": []}),
    ("/tokenize", 400, "messages", {"messages": "hi"}),
    ("/tokenize", 400, "messages[0].role", {"messages": [{"content": "x"}]}),
    ("/tokenize", 404, "model", {"model": "gpt-4", "prompt": "a"}),
    ("/tokenize", 400, "model", {"model": 5, "prompt": "a"}),
    ("/detokenize", 400, "tokens", {}),
    ("/detokenize", 400, "tokens", {"tokens": "a"}),
    ("/detokenize", 400, "tokens", {"tokens": ["a"]}),
    ("/detokenize", 400, "tokens", {"tokens": [1.5]}),
    ("/detokenize", 400, "tokens", {"tokens": [1, VOCAB_SIZE]}),
    ("/detokenize", 400, "tokens", {"tokens": [-1]}),
    ("/detokenize", 400, "tokens", {"tokens": [2**70]}),
    ("/apply-template", 400, "messages", {}),
    ("/apply-template", 400, "messages", {"messages": [], "model": "tiny"}),
    ("/apply-template", 404, "model", {"messages": USER, "model": "other"}),
]


@pytest.mark.parametrize(("path", "status", "param", "body"), BAD)
def test_bad_bodies(
    server: LiveServer, path: str, status: int, param: str | None, body: dict[str, Any]
) -> None:
    answer = server.http.post(path, json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
