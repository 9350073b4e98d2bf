"""The engine in a child process: how it starts, talks, dies and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from octavo.decoding import SamplingParams
from octavo.engine import EngineOptions, Request
from octavo.engine.process import EngineProcess
from octavo.engine.supervision import Supervision
from octavo.errors import EngineError, InvalidParameterError, ModelNotFoundError, PromptTooLongError
from tests.serving.tiny_model import FACTORY


@asynccontextmanager
async def engine_process(
    model: Path | str, backend: str = "fast", supervision: Supervision | None = None
) -> AsyncIterator[EngineProcess]:
    options = EngineOptions(model=str(model), backend=backend)
    client = EngineProcess(options, factory=FACTORY, supervision=supervision)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def request(name: str = "r", prompt: Any = (65,), **params: Any) -> Request:
    return Request(name, list(prompt), SamplingParams(temperature=0, **params))


async def text_of(client: EngineProcess, wanted: Request) -> str:
    return "".join([delta.text async for delta in client.stream(wanted)])


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def until_gone(pid: int, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not gone(pid):
            await asyncio.sleep(0.01)


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"octavo-engine-{os.getpid()}-*"))


async def test_streams_and_stats(tiny_model: Path) -> None:
    async with engine_process(tiny_model) as client:
        assert client.state.phase == "starting"
        assert await client.wait_located() == str(tiny_model)
        await client.wait_ready()
        assert client.ready_info is not None
        assert client.ready_info.max_model_len == 4096
        texts = await asyncio.gather(
            *(text_of(client, request(f"r{i}", [65 + i], max_tokens=4)) for i in range(10))
        )
        assert texts == ["".join(chr(66 + i + j) for j in range(4)) for i in range(10)]
        stats = await client.stats()
        assert (stats.num_running, stats.generation_tokens) == (0, 40)


async def test_refusals_are_the_engines_own_errors(tiny_model: Path) -> None:
    async with engine_process(tiny_model) as client:
        await client.wait_ready()
        with pytest.raises(PromptTooLongError, match="4,096"):
            await text_of(client, request(prompt=[65] * 5000))
        with pytest.raises(InvalidParameterError) as caught:
            await text_of(client, request(prompt=[9999]))
        assert caught.value.param == "prompt"
        assert str(caught.value).count("prompt:") == 1
        assert await text_of(client, request(max_tokens=2)) == "BC"


async def test_closing_a_stream_aborts_the_request(tiny_model: Path) -> None:
    async with engine_process(tiny_model, "slow") as client:
        await client.wait_ready()
        async with aclosing(client.stream(request(max_tokens=3000, ignore_eos=True))) as stream:
            await anext(stream)
            assert (await client.stats()).num_running == 1
        stats = await client.stats()
        assert (stats.num_running, stats.num_used_blocks) == (0, 0)
        assert stats.finished["abort"] == 1


async def test_abort_ends_the_stream(tiny_model: Path) -> None:
    async with engine_process(tiny_model, "slow") as client:
        await client.wait_ready()
        reasons = []
        async for delta in client.stream(request("a", max_tokens=3000, ignore_eos=True)):
            reasons.append(delta.finish_reason)
            await client.abort("a")
        assert reasons[-1] == "abort"
        await client.abort("unknown")


async def test_one_sample_is_stopped_and_the_others_go_on(tiny_model: Path) -> None:
    async with engine_process(tiny_model, "slow") as client:
        await client.wait_ready()
        counts, reasons = [0, 0, 0], {}
        async for delta in client.stream(request("a", n=3, max_tokens=40, ignore_eos=True)):
            counts[delta.index] += len(delta.token_ids)
            if delta.finish_reason:
                reasons[delta.index] = delta.finish_reason
            if counts[1] == 2 and 1 not in reasons:
                client.end_sample("a", 1)
        assert reasons == {0: "length", 1: "stop", 2: "length"}
        assert counts == [40, 2, 40]
        stats = await client.stats()
        assert stats.generation_tokens < 100  # the engine drew no more than it had begun
        assert (stats.finished["stop"], stats.num_used_blocks) == (1, 0)
        client.end_sample("a", 0)
        client.end_sample("unknown", 0)


async def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    async with engine_process(tmp_path / "nothing.gguf") as client:
        with pytest.raises(ModelNotFoundError, match=r"nothing\.gguf"):
            await client.wait_ready()
        with pytest.raises(ModelNotFoundError):
            await client.wait_located()
        assert client.state.phase == "dead"
        with pytest.raises(EngineError, match="not ready"):
            await text_of(client, request())


async def test_close_leaves_nothing_behind(tiny_model: Path) -> None:
    before = folders()
    async with engine_process(tiny_model, "slow") as client:
        await client.wait_ready()
        assert folders() == before  # the socket's folder is gone once both ends are connected
        pid = client.pid
        stream = client.stream(request(max_tokens=3000, ignore_eos=True))
        await anext(stream)
        await client.close()
        with pytest.raises(EngineError, match="shut down"):
            async for _ in stream:
                pass
    assert gone(pid)
    assert folders() == before


async def test_a_crash_is_survived(tiny_model: Path) -> None:
    """Streams that have shown text, requests that have shown nothing, and new ones: all get what
    they would have got."""
    async with engine_process(tiny_model, "slow") as client:
        await client.wait_ready()
        shown = client.stream(request("shown", max_tokens=60))
        text = (await anext(shown)).text
        os.kill(client.pid, signal.SIGSTOP)  # so that the next request stays unanswered
        unseen = asyncio.create_task(text_of(client, request("unseen", max_tokens=3)))
        async with asyncio.timeout(20):
            while client.num_live < 2:
                await asyncio.sleep(0)
        os.kill(client.pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while client.state.phase != "restarting":
                await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="not ready"):
            await client.stats()
        async with asyncio.timeout(60):
            assert await unseen == "BCD"
            text += "".join([delta.text async for delta in shown])
            assert text == "".join(chr(66 + i) for i in range(60))
        assert client.num_restarts == 1
        assert await text_of(client, request("new", max_tokens=2)) == "BC"


async def test_a_hang_is_a_crash(tiny_model: Path) -> None:
    """A stopped engine: noticed though it says nothing, replaced, its stream continued."""
    quick = Supervision(hang_timeout_s=1.5)
    async with engine_process(tiny_model, "slow", quick) as client:
        await client.wait_ready()
        stream, pid = client.stream(request(max_tokens=60)), client.pid
        text = (await anext(stream)).text
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while client.progress().stalled_s < 0.1:
                await asyncio.sleep(0.01)
            text += "".join([delta.text async for delta in stream])
        assert text == "".join(chr(66 + i) for i in range(60))
        assert gone(pid)
        assert client.progress().stalled_s == 0


async def test_an_idle_engine_never_hangs(tiny_model: Path) -> None:
    async with engine_process(tiny_model, "fast", Supervision(hang_timeout_s=0.2)) as client:
        await client.wait_ready()
        assert await text_of(client, request(max_tokens=2)) == "BC"
        await asyncio.sleep(0.7)
        assert client.num_restarts == 0


async def test_it_stays_down_after_crashing_again_and_again(tiny_model: Path) -> None:
    async with engine_process(tiny_model, "fast", Supervision(max_restarts=2)) as client:
        async with asyncio.timeout(40):
            for _ in range(3):
                await client.wait_ready()
                pid = client.pid
                os.kill(pid, signal.SIGKILL)
                while client.pid == pid:
                    await asyncio.sleep(0.01)
            await client.wait_dead()
        assert isinstance(client.failure, EngineError)
        with pytest.raises(EngineError, match="status -9"):
            await client.wait_ready()


async def test_the_engine_dies_with_its_parent(tiny_model: Path) -> None:
    """Even in the middle of its work, and when the parent had no chance to say good-bye."""
    script = (
        "import asyncio, sys\n"
        "from tests.serving.test_engine_process import engine_process, request\n"
        "async def main():\n"
        "    async with engine_process(sys.argv[1], 'slow') as client:\n"
        "        await client.wait_ready()\n"
        "        async for _ in client.stream(request(max_tokens=3000, ignore_eos=True)):\n"
        "            print(client.pid, flush=True)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(tiny_model),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert not gone(pid)
    parent.kill()
    await parent.wait()
    await until_gone(pid)
