"""The official JavaScript client, unchanged, against the scripted server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.serving import ServerOptions
from octavo.weights.cache import cache_folder, locked
from tests.serving.live_server import MODEL, LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

PACKAGE = "openai@6.49.0"
SCRIPT = """
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "key", maxRetries: 0 });
const model = process.argv[3];
const messages = [{ role: "user", content: "hi" }];
const common = { model, temperature: 0 };
const out = {};

out.models = (await client.models.list()).data.map((one) => one.id);

const chat = await client.chat.completions.create({ ...common, messages, max_tokens: 5 });
out.chat = chat.choices[0].message.content;
out.usage = chat.usage;

out.streamed = "";
const options = { include_usage: true };
const stream = await client.chat.completions.create(
  { ...common, messages, max_tokens: 5, stream: true, stream_options: options });
for await (const chunk of stream) {
  out.streamed += chunk.choices[0]?.delta?.content ?? "";
  if (chunk.usage) out.streamedUsage = chunk.usage;
}

const asked = { ...common, prompt: "a", max_tokens: 3, logprobs: 1 };
const text = await client.completions.create(asked);
out.completion = text.choices[0].text;
out.logprobs = text.choices[0].logprobs.tokens.length;

const schema = { type: "object", properties: { a: { const: 1 } }, required: ["a"],
                 additionalProperties: false };
const shaped = await client.chat.completions.create({ ...common, messages, max_tokens: 40,
  response_format: { type: "json_schema", json_schema: { name: "s", strict: true, schema } } });
out.shaped = JSON.parse(shaped.choices[0].message.content);

const response = await client.responses.create({ ...common, input: "hi", max_output_tokens: 16 });
out.response = response.output_text;
const events = [];
for await (const event of await client.responses.create(
    { ...common, input: "hi", max_output_tokens: 16, stream: true })) events.push(event.type);
out.events = [events[0], events.at(-1)];
const kept = await client.responses.retrieve(response.id);
out.kept = kept.output_text === response.output_text;

const line = { custom_id: "1", method: "POST", url: "/v1/completions",
               body: { ...common, prompt: "a", max_tokens: 2 } };
const upload = await toFile(Buffer.from(JSON.stringify(line) + "\\n"), "in.jsonl");
const file = await client.files.create({ file: upload, purpose: "batch" });
let batch = await client.batches.create({ input_file_id: file.id, endpoint: "/v1/completions",
                                          completion_window: "24h" });
while (!["completed", "failed"].includes(batch.status)) {
  await new Promise((wake) => setTimeout(wake, 20));
  batch = await client.batches.retrieve(batch.id);
}
const result = await (await client.files.content(batch.output_file_id)).text();
out.batch = JSON.parse(result).response.body.choices[0].text;

try {
  await client.chat.completions.create({ ...common, messages, temperature: -1 });
} catch (error) {
  out.error = [error.constructor.name, error.status, error.param];
}

const aborter = new AbortController();
const long = await client.completions.create(
  { ...common, prompt: "a", max_tokens: 3000, stream: true, ignore_eos: true },
  { signal: aborter.signal });
for await (const _ of long) { aborter.abort(); break; }
console.log(JSON.stringify(out));
"""


@pytest.fixture(scope="module")
def package() -> Path:
    """A folder whose node_modules hold the client. Skips, saying what is missing."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = cache_folder() / "external" / f"npm-{PACKAGE}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock", lambda: None):
        if not folder.is_dir():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    scratch = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(scratch)]
    done = subprocess.run(
        ["npm", "install", *options, PACKAGE],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"needs {PACKAGE}, which npm could not fetch: {done.stderr[-300:]}")
    scratch.rename(folder)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    model = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    data = str(tmp_path_factory.mktemp("data"))
    options = ServerOptions(served_model_names=(MODEL,), data_dir=data)
    with live_server(model, server=options) as server:
        yield server


def test_openai_client(package: Path, live: LiveServer) -> None:
    script = package / "octavo-test.mjs"
    script.write_text(SCRIPT)
    done = subprocess.run(
        ["node", str(script), live.url, MODEL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    out: dict[str, Any] = json.loads(done.stdout)
    assert out["models"] == [MODEL]
    assert out["chat"] == out["streamed"] == "ABCDE"
    assert out["usage"] == {**out["streamedUsage"], **_cached(out["usage"])}
    assert (out["completion"], out["logprobs"]) == ("bcd", 3)
    assert out["shaped"] == {"a": 1}
    assert out["response"].startswith("ABC")
    assert out["events"][0] == "response.created"
    assert out["events"][1] in ("response.completed", "response.incomplete")
    assert out["kept"]
    assert out["batch"] == "bc"
    assert out["error"] == ["BadRequestError", 400, "temperature"]
    live.wait_idle()


def _cached(usage: dict[str, Any]) -> dict[str, Any]:
    """The second answer found the prompt in the cache; all else is the same."""
    return {"prompt_tokens_details": usage["prompt_tokens_details"]}
