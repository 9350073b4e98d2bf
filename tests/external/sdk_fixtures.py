"""Fixtures of the SDKs' own API tests, without the packages that their conftests want besides.

Loaded with `-p` by a pytest that runs those tests; TEST_API_BASE_URL says where the server is, and
OCTAVO_SDK which SDK it is.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any

import pytest

SDK = import_module(os.environ["OCTAVO_SDK"])
NAME = {"openai": "OpenAI", "anthropic": "Anthropic"}[SDK.__name__]
SETTINGS: dict[str, Any] = {
    "base_url": os.environ["TEST_API_BASE_URL"],
    "api_key": "My API Key",
    "max_retries": 0,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As the SDKs' conftests do: the async clients live as long as the session."""
    for item in items:
        if item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    strict = getattr(request, "param", True)
    with getattr(SDK, NAME)(**SETTINGS, _strict_response_validation=strict) as found:
        yield found


@pytest.fixture(scope="session")
async def async_client(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    param = getattr(request, "param", True)
    strict = param.get("strict", True) if isinstance(param, dict) else param
    async with getattr(SDK, f"Async{NAME}")(
        **SETTINGS, _strict_response_validation=strict
    ) as found:
        yield found
