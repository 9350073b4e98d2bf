"""One scripted server for all tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
