"""The parts of `octavo bench serve` that need no server."""

from __future__ import annotations

import random
import re
import statistics
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load import (
    Lengths,
    LoadResult,
    OpenLoop,
    PromptMix,
    RequestRecord,
    Slo,
    Target,
    read_trace,
    write_html,
)
from octavo.bench.load.prompts import Prompt
from octavo.errors import FormatError, InvalidParameterError


def _record(sent: float, times: list[float], tokens: int | None = None) -> RequestRecord:
    end = times[-1] if times else sent
    return RequestRecord(sent, times, end, 10, len(times) if tokens is None else tokens)


@pytest.mark.parametrize("text", ["128", "64-256", "128:0.9,2048-4096:0.1", "1:3"])
def test_lengths_stay_in_their_ranges(text: str):
    lengths = Lengths.parse(text, "--input-len")
    draw = random.Random(0)
    drawn = [lengths.draw(draw) for _ in range(300)]
    assert all(any(low <= n <= high for low, high, _ in lengths.parts) for n in drawn)


def test_weights_of_lengths_are_kept():
    lengths = Lengths.parse("1:3,2:1", "--input-len")
    draw = random.Random(0)
    drawn = [lengths.draw(draw) for _ in range(4000)]
    assert drawn.count(1) / 4000 == pytest.approx(0.75, abs=0.03)
    assert str(lengths) == "1 (75%), 2 (25%)"


@pytest.mark.parametrize(
    "text", ["", "0", "9-3", "-4", "a", "1:0", "1,,2", "1:-1", "99999999", "1e3", "1:1:1"]
)
def test_bad_lengths_are_named(text: str):
    with pytest.raises(InvalidParameterError, match="--input-len"):
        Lengths.parse(text, "--input-len")


def test_prompts_share_what_they_should_and_repeat_with_the_seed():
    mix = PromptMix(Lengths.parse("20", ""), Lengths.parse("5", ""), 15, 2, seed=3)
    first, again = (list(islice(mix.prompts(), 40)) for _ in range(2))
    assert first == again
    beginnings = {" ".join(p.text.split()[:15]) for p in first}
    assert len(beginnings) == 2
    assert len({p.text for p in first}) == 40
    assert {len(p.text.split()) for p in first} == {20}


@given(st.integers(1, 60))
def test_prompts_of_a_length_in_tokens_are_no_longer(length: int):
    mix = PromptMix(Lengths.parse(str(length), ""), Lengths.parse("1", ""), count_tokens=len)
    text = next(mix.prompts()).text
    assert len(text) <= length or " " not in text


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0)])
def test_open_loop_keeps_its_rate_and_shape(burstiness: float, variation: float):
    """The coefficient of variation of gamma intervals is shape ** -0.5."""
    moments = list(islice(OpenLoop(5.0, burstiness, seed=1).moments(), 20_000))
    gaps = [b - a for a, b in pairwise(moments)]
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(variation, rel=0.08)


def test_trace_is_read_sorted_and_sped_up(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 12, "input_length": 7, "output_length": 3}\n\n'
        '{"timestamp": 10, "prompt": "hi", "max_tokens": 2}\n'
        '{"timestamp": 11, "messages": [{"role": "user", "content": "x"}]}\n'
    )
    trace = read_trace(path, speedup=2)
    assert [entry.at_s for entry in trace.entries] == [0.0, 0.5, 1.0]
    mix = PromptMix(Lengths.parse("4", ""), Lengths.parse("9", ""))
    prompts = list(mix.follow(iter(trace.entries)))
    assert prompts[0] == Prompt("hi", 2)
    assert prompts[1].messages == ({"role": "user", "content": "x"},)
    assert (len(prompts[2].text.split()), prompts[2].output_len) == (7, 3)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("nothing", "not JSON"),
        ("[1]", "list"),
        ('{"timestamp": "now"}', "timestamp"),
        ('{"timestamp": NaN}', "not JSON"),
        ('{"timestamp": 1' + "0" * 400 + "}", "timestamp"),
        ('{"timestamp": -1e300}', "timestamp"),
        ('{"timestamp": true}', "timestamp"),
        ('{"input_length": 0}', "input_length"),
        ('{"output_length": 1.5}', "output_length"),
        ('{"prompt": 5}', "prompt"),
        ('{"messages": [{"role": 1}]}', "messages"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_bad_trace_lines_are_named(tmp_path: Path, line: str, named: str):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(FormatError, match=re.compile(f"line 2.*{named}")):
        read_trace(path)


def test_empty_trace_is_an_error(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n")
    with pytest.raises(FormatError, match="no requests"):
        read_trace(path)


def test_numbers_of_a_run_are_those_defined():
    records = [
        _record(0.0, [0.5, 0.6, 0.7]),
        _record(1.0, [3.0, 3.5]),
        RequestRecord(1.0, error="HTTP 429"),
        RequestRecord(1.0, error="HTTP 429"),
        RequestRecord(1.0),
    ]
    slo = Slo.parse("ttft=1,tpot=0.2")
    result = LoadResult.of(records, 4.0, slo=slo, cost_per_hour=3.6)
    assert (result.num_good, result.errors) == (2, {"HTTP 429": 2, "empty answer": 1})
    assert result.output_tps == 5 / 4
    assert result.total_tps == 25 / 4
    assert (result.slo_met, result.goodput_per_s) == (1, 0.25)
    assert result.ttft is not None
    assert (result.ttft.p50, result.ttft.p99) == (0.5, 2.0)
    assert result.inter_token is not None
    assert result.inter_token.p99 == pytest.approx(0.5)
    assert result.tpot is not None
    assert result.tpot.p50 == pytest.approx(0.1)
    assert result.cost_per_million == pytest.approx(3.6 / (1.25 * 3600) * 1e6)


@pytest.mark.parametrize(
    ("slo", "met"),
    [("ttft=0.5", True), ("ttft=0.4", False), ("tpot=0.1", True), ("e2e=0.6", False)],
)
def test_slo(slo: str, met: bool):
    assert Slo.parse(slo).met_by(_record(0.0, [0.5, 0.5625, 0.625])) is met


@pytest.mark.parametrize("text", ["", "ttft", "ttft=", "ttft=0", "speed=3", "ttft=1,x=2", "e2e=-1"])
def test_bad_slo_is_named(text: str):
    with pytest.raises(InvalidParameterError, match="slo"):
        Slo.parse(text)


def test_answer_of_one_token_has_no_time_per_token():
    assert _record(0.0, [0.5], 1).tpot_s is None
    assert Slo.parse("tpot=0.001").met_by(_record(0.0, [0.5], 1))


def test_html_report_is_whole_and_escaped(tmp_path: Path):
    path = tmp_path / "report.html"
    result = LoadResult.of([_record(0.0, [0.5, 0.6])], 1.0, load="<b>load", slo=Slo(ttft_s=1))
    write_html(path, result, "<script>alert(1)</script>")
    text = path.read_text()
    assert "<script" not in text
    assert "<b>load" not in text
    assert "<svg" in text
    assert "goodput" in text
    assert not re.search(r"(src|href)=.http", text)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_addresses(url: str):
    assert Target(url).path == "http://h:1/v1/chat/completions"
    assert Target(url, endpoint="completions").path == "http://h:1/v1/completions"
