"""`octavo batch` in processes of its own: summary, resuming after a kill, a disk that is full."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving.tiny_model import write_tiny_model
from tests.support.lora import write_adapter

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoders"

# The scripted engine behind the real command line.
LAUNCH = """
import sys
from octavo.backends import BACKENDS
BACKENDS["fast"] = ("tests.serving.tiny_model", "FastScript")
BACKENDS["slow"] = ("tests.serving.tiny_model", "SlowScript")
from octavo.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def requests(path: Path, count: int, **body: Any) -> Path:
    lines = [
        {
            "custom_id": str(i),
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": "a", "temperature": 0, "max_tokens": 4, **body},
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def start(
    source: Path, target: Path, *options: str, limit: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LAUNCH, "batch", str(source), str(target), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=limit)


def finish(process: subprocess.Popen[str], status: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    return out, err


def records(target: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in target.read_bytes().splitlines()]


def test_from_file_to_file(model: Path, tmp_path: Path) -> None:
    source = requests(tmp_path / "in", 5)
    source.write_text("nonsense\n" + source.read_text())
    arguments = (source, tmp_path / "out", "-m", str(model), "--backend", "fast", "--json")
    out, _ = finish(start(*arguments))
    summary = json.loads(out)
    expected = {"total": 6, "completed": 5, "failed": 1, "resumed": 0, "output_tokens": 20}
    assert summary.items() >= expected.items()
    good = {r["custom_id"]: r for r in records(tmp_path / "out") if r["response"]}
    assert set(good) == set("01234")
    assert good["0"]["response"]["body"]["choices"][0]["text"] == "bcde"
    again, _ = finish(start(*arguments))
    assert json.loads(again)["resumed"] == 6
    assert len(records(tmp_path / "out")) == 6


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_and_started_again(model: Path, tmp_path: Path, how: signal.Signals) -> None:
    source, target = requests(tmp_path / "in", 240, max_tokens=10), tmp_path / "out"
    options = ("-m", str(model), "-c", "4")
    process = start(source, target, *options, "--backend", "slow")
    while not (target.exists() and target.read_bytes().count(b"\n") >= 8):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(how)
    finish(process, -9 if how is signal.SIGKILL else 130)
    if how is signal.SIGKILL:
        with target.open("ab") as file:
            file.write(b'{"id":"batch_req_torn')  # as if the kill had come in a write
    done = target.read_bytes()
    _, err = finish(start(source, target, *options, "--backend", "fast"))
    assert "240 of 240 requests answered" in err
    whole = target.read_bytes()
    kept = done[: done.rindex(b"\n") + 1]
    assert whole.startswith(kept)
    assert sorted(int(r["custom_id"]) for r in records(target)) == list(range(240))


def test_a_full_disk(model: Path, tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk's end: the kernel refuses the write."""
    source, target = requests(tmp_path / "in", 40), tmp_path / "out"
    options = ("-m", str(model), "--backend", "fast")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    _, err = finish(start(source, target, *options, limit=limit), 1)
    assert "octavo: batch: cannot write to" in err
    assert "everything that was finished before" in err
    assert "Traceback" not in err
    some = records(target)
    assert 0 < len(some) < 40
    _, err = finish(start(source, target, *options))
    assert "40 of 40 requests answered" in err
    assert records(target)[: len(some)] == some
    assert len({r["custom_id"] for r in records(target)}) == 40


def test_embeddings(model: Path, tmp_path: Path) -> None:
    line = {"custom_id": "e", "url": "/v1/embeddings", "body": {"input": ["a", "b"]}}
    (tmp_path / "in").write_text(json.dumps(line) + "\n")
    finish(start(tmp_path / "in", tmp_path / "out", "-m", str(model)))
    (record,) = records(tmp_path / "out")
    assert [len(one["embedding"]) for one in record["response"]["body"]["data"]] == [64, 64]


@pytest.mark.parametrize("name", ["bert-rerank", "bert", "decoder"])
def test_rerank_and_score(model: Path, tmp_path: Path, name: str) -> None:
    """By a cross-encoder, by an encoder that embeds, and by a decoder, which embeds for them."""
    path = model if name == "decoder" else FIXTURES / name
    pair = {"text_1": "the cat", "text_2": ["a cat", "mice"]}
    ranked = {"query": "the cat", "documents": pair["text_2"], "top_n": 1}
    lines = [
        {"custom_id": "score", "url": "/v1/score", "body": pair},
        {"custom_id": "rank", "url": "/v2/rerank", "body": ranked},
        {"custom_id": "bad", "url": "/score", "body": {"text_1": ["a", "b"], "text_2": ["c"] * 3}},
    ]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out, _ = finish(start(tmp_path / "in", tmp_path / "out", "-m", str(path), "--json"))
    found = {r["custom_id"]: r["response"] for r in records(tmp_path / "out")}
    scores = [one["score"] for one in found["score"]["body"]["data"]]
    (best,) = found["rank"]["body"]["results"]
    assert best["relevance_score"] == max(scores)
    assert best["index"] == scores.index(max(scores))
    assert found["bad"]["status_code"] == 400
    summary = json.loads(out)
    assert (summary["completed"], summary["failed"]) == (2, 1)
    assert summary["input_tokens"] > 0


def test_adapters(model: Path, tmp_path: Path) -> None:
    """A request that names an adapter is for it, the others are for the model."""
    folder = write_adapter(tmp_path / "poet", {"model.layers.0.mlp.up_proj": (128, 64)}, size=2.0)
    source = requests(tmp_path / "in.jsonl", 2, prompt=list(range(97, 137)), ignore_eos=True)
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    lines[1]["body"]["model"] = "poet"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    target = tmp_path / "out.jsonl"
    options = ("--model", str(model), "--backend", "cpu", "--lora", f"poet={folder}")
    finish(start(source, target, *options))
    records = [json.loads(line) for line in target.read_text().splitlines()]
    bodies = {record["custom_id"]: record["response"]["body"] for record in records}
    assert bodies["1"]["model"] == "poet"
    assert bodies["0"]["choices"][0]["text"] != bodies["1"]["choices"][0]["text"]


def test_wrong_use(model: Path, tmp_path: Path) -> None:
    source = requests(tmp_path / "in", 1)
    _, err = finish(start(source, source, "-m", str(model)), 2)
    assert "OUTPUT is INPUT" in err
    _, err = finish(start(source, tmp_path / "out"), 2)
    assert "--model" in err
    (tmp_path / "notes").write_text("mine\n")
    _, err = finish(start(source, tmp_path / "notes", "-m", str(model)), 1)
    assert "is not a record of a batch" in err
    assert (tmp_path / "notes").read_text() == "mine\n"
