"""One scripted server for all tests of the protocol, and the official clients of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from tests.serving.live_server import LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripted model's folder."""
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def server(tiny_model: Path) -> Iterator[LiveServer]:
    """A server whose engine takes no time."""
    with live_server(tiny_model) as live:
        yield live


@pytest.fixture(scope="module")
def slow_server(tiny_model: Path) -> Iterator[LiveServer]:
    """A server whose steps take five milliseconds; a test leaves it idle."""
    with live_server(tiny_model, backend="slow") as live:
        yield live


@pytest.fixture
def openai_client(server: LiveServer) -> Iterator[openai.OpenAI]:
    """The official client of `server`, closed behind the test."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(server: LiveServer) -> Iterator[anthropic.Anthropic]:
    """The official client of `server`, closed behind the test."""
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """What a file's tests leave open is reported in that file and not in a later one."""
    yield
    gc.collect()
