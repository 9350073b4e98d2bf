"""Each malformed line of a batch file is told and hurts no other."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.batch import Answer, BadLine, Item, Tally, count_lines, read_items, run_items
from octavo.batch import lines as lines_module

GOOD = {"custom_id": "g", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}}


def read(*lines: Any, endpoint: str | None = None) -> list[Item | BadLine]:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(read_items(io.BytesIO(b"\n".join(raw)), endpoint))


BAD = [
    ("invalid_json_line", None, b"hello"),
    ("invalid_json_line", None, b"{"),
    ("invalid_json_line", None, b"[1]"),
    ("invalid_json_line", None, b"null"),
    ("invalid_json_line", None, b"\xff\xfe"),
    ("invalid_json_line", None, b"[" * 10_000),
    ("invalid_json_line", None, b'{"custom_id": NaN}'),
    ("invalid_custom_id", "custom_id", {**GOOD, "custom_id": 5}),
    ("invalid_custom_id", "custom_id", {**GOOD, "custom_id": ""}),
    ("invalid_custom_id", "custom_id", {**GOOD, "custom_id": "x" * 600}),
    ("invalid_custom_id", "custom_id", {k: v for k, v in GOOD.items() if k != "custom_id"}),
    ("invalid_method", "method", {**GOOD, "method": "GET"}),
    ("invalid_url", "url", {**GOOD, "url": "/v1/files"}),
    ("invalid_url", "url", {**GOOD, "url": ["x"]}),
    ("invalid_url", "url", {k: v for k, v in GOOD.items() if k != "url"}),
    ("invalid_body", "body", {**GOOD, "body": "x"}),
    ("invalid_body", "body", {k: v for k, v in GOOD.items() if k != "body"}),
    ("invalid_body", "body.stream", {**GOOD, "body": {"stream": True}}),
    ("unknown_field", "surprise", {**GOOD, "surprise": 1}),
]


@pytest.mark.parametrize(("code", "param", "line"), BAD)
def test_bad_line(code: str, param: str | None, line: Any) -> None:
    first, bad, last = read({**GOOD, "custom_id": "1"}, line, {**GOOD, "custom_id": "2"})
    assert isinstance(first, Item)
    assert isinstance(last, Item)
    assert isinstance(bad, BadLine)
    assert (bad.code, bad.param, bad.line) == (code, param, 2)
    assert last.line == 3


def test_lone_surrogates_reach_no_file() -> None:
    (found,) = read(b'{"custom_id": "a\\ud800", "url": "/v1/completions", "body": {}}')
    assert isinstance(found, BadLine)


def test_a_custom_id_counts_once() -> None:
    first, second = read(GOOD, GOOD)
    assert isinstance(first, Item)
    assert isinstance(second, BadLine)
    assert (second.code, second.custom_id) == ("duplicate_custom_id", "g")


def test_one_endpoint_only() -> None:
    (item,) = read(GOOD, endpoint="/v1/chat/completions")
    assert isinstance(item, BadLine)
    assert isinstance(read(GOOD, endpoint="/v1/completions")[0], Item)


def test_blank_lines_and_byte_order_marks() -> None:
    raw = b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\n\n  \n" + b"x\n"
    item, bad = read_items(io.BytesIO(raw))
    assert isinstance(item, Item)
    assert isinstance(bad, BadLine)
    assert bad.line == 4
    assert count_lines(io.BytesIO(raw)) == 2


def test_a_long_line_is_skipped_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 200)
    long = {**GOOD, "body": {"prompt": "x" * 1000}}
    bad, good = read(long, {**GOOD, "custom_id": "z"})
    assert isinstance(bad, BadLine)
    assert bad.code == "line_too_long"
    assert isinstance(good, Item)
    assert good.line == 2


@given(st.binary(max_size=300))
def test_any_bytes_are_lines(raw: bytes) -> None:
    found = list(read_items(io.BytesIO(raw)))
    assert len(found) == count_lines(io.BytesIO(raw))


async def run(items: list[Item | BadLine], tally: Tally, limit: int = 3) -> tuple[list[Any], int]:
    running, most, kept = 0, 0, []

    async def call(item: Item) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Answer(200, {})

    async def keep(record: dict[str, Any]) -> None:
        kept.append(record["custom_id"] or record["error"]["line"])
        tally.add(record)

    await run_items(items, tally, call, keep, lambda: limit)
    return kept, most


async def test_run_skips_what_is_settled_and_bounds_what_runs() -> None:
    items = read(*({**GOOD, "custom_id": str(i)} for i in range(10)), b"bad")
    tally = Tally(settled_ids={"3", "4"})
    kept, most = await run(items, tally)
    assert set(kept) == {"0", "1", "2", "5", "6", "7", "8", "9", 11}
    assert most == 3
    again, _ = await run(items, tally)
    assert again == []


async def test_an_error_of_keep_ends_everything() -> None:
    async def call(item: Item) -> Answer:
        await asyncio.sleep(0 if item.custom_id == "0" else 60)
        return Answer(200, {})

    async def keep(record: dict[str, Any]) -> None:
        raise OSError("full")

    items = read(*({**GOOD, "custom_id": str(i)} for i in range(3)))
    with pytest.raises(OSError, match="full"):
        await asyncio.wait_for(run_items(items, Tally(), call, keep, lambda: 3), 10)
