"""A scripted model that answers as a helpful one would: it reads its tools from the prompt and
calls the first one with what it finds in the question."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends import BACKENDS
from octavo.engine.engine import Engine
from octavo.engine.options import EngineOptions
from octavo.engine.worker import Progress, load_engine
from tests.serving.tiny_model import END, START, FastScript, Scripted

MESSAGE = re.compile(r"\x01(\w+)\n(.*?)\x02", re.DOTALL)
TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)


def answer(prompt: str) -> str:
    """The answer to a rendered conversation, whose messages are between \\x01 and \\x02."""
    messages = MESSAGE.findall(prompt)
    role, text = messages[-1]
    if role != "user" or text.startswith("<tool_response>"):
        return "That is what the tool says."
    found = TOOLS.search(prompt)
    if found is not None:
        tool = json.loads(found[1].splitlines()[0])["function"]
        called = {"name": tool["name"], "arguments": arguments(tool, text)}
        call = json.dumps(called, ensure_ascii=False)
        return f"<tool_call>\n{call}\n</tool_call>"
    keys = re.findall(r"'(\w+)'", text) if "JSON" in text else []
    return json.dumps(dict.fromkeys(keys, "A cat.")) if keys else "Hello, I am here to help."


@lru_cache(maxsize=64)
def _wanted(prompt: tuple[int, ...]) -> bytes:
    """The answer to a prompt of byte tokens and control tokens."""
    shown = ({START: 1, END: 2}.get(token, token) for token in prompt)
    text = bytes(token for token in shown if token < 256).decode("utf-8", "replace")
    return answer(text).encode()


def arguments(tool: dict[str, Any], text: str) -> dict[str, Any]:
    """Numbers of the question for integers; what is quoted or its last name for strings."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    names = re.findall(r"'([^']+)'", text) or re.findall(r"[A-Z]\w+(?: [A-Z]\w+)*", text)[-1:]
    values: dict[str, Any] = {}
    for key, schema in tool["parameters"].get("properties", {}).items():
        pool: list[Any] = numbers if schema.get("type") == "integer" else names
        values[key] = pool.pop(0) if len(pool) > 1 else (pool or [1])[0]
    return values


class Helpful(Scripted):
    """Writes `answer`."""

    def wanted(self, context: NDArray[np.int32]) -> int | None:
        tokens: list[int] = context.tolist()
        begin = len(tokens) - 1 - tokens[::-1].index(START)
        written = tokens[begin + 1 + len("assistant\n") :]
        wanted = _wanted(tuple(tokens[:begin]))
        if bytes(written) != wanted[: len(written)]:  # a grammar had its way: be done soon
            return ord('"')
        return wanted[len(written)] if len(written) < len(wanted) else END


class HelpfulScript(FastScript):
    """Steps take no time."""

    executable = Helpful


def make_engine(options: EngineOptions, progress: Progress, located: object) -> Engine:
    """The engine process's factory: knows the backend "helpful"."""
    BACKENDS["helpful"] = (__name__, "HelpfulScript")
    return load_engine(options, progress, located)  # type: ignore[arg-type]


FACTORY = f"{__name__}:make_engine"
