"""LLM on the null backend: the calls and results people see."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.engine.chat import Chats
from octavo.errors import EngineError, InvalidParameterError, PromptTooLongError, TemplateError
from tests.support.engines import byte_tokenizer, null_engine

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
GREEDY = SamplingParams(temperature=0, max_tokens=4)


@pytest.fixture
def llm() -> Iterator[LLM]:
    with LLM.from_engine(null_engine(tokenizer=byte_tokenizer(TEMPLATE), max_queue=4)) as llm:
        yield llm


@pytest.fixture
def bare() -> Iterator[LLM]:
    """A model without a tokenizer."""
    with LLM.from_engine(null_engine()) as llm:
        yield llm


def test_texts_and_ids_one_or_many(llm: LLM) -> None:
    (one,) = llm.generate("ab", GREEDY)
    assert one.outputs[0].text == "cdef"
    assert one.prompt == "ab"
    assert one.prompt_token_ids == [256, 97, 98]
    assert one.finished
    two = llm.generate(["A", [48, 49]], GREEDY)
    assert [o.outputs[0].text for o in two] == ["BCDE", "2345"]
    (ids,) = llm.generate([48, 49], GREEDY)
    assert ids.prompt is None
    assert ids.outputs[0].token_ids == [50, 51, 52, 53]
    assert llm.generate([], GREEDY) == []


def test_prompts_in_vllms_shape_are_what_they_hold(llm: LLM) -> None:
    text, ids = "Hello", llm.tokenizer.encode("Hello") if llm.tokenizer else []
    shapes: list[Any] = [{"prompt": text}, [{"prompt_token_ids": ids}], [{"prompt": text}, ids]]
    for shape in shapes:
        assert all(output.prompt_token_ids == ids for output in llm.generate(shape))


@pytest.mark.parametrize(
    "prompts",
    [{}, {"prompt": 5}, {"text": "a"}, [{"prompt": "a", "multi_modal_data": {}}], 5, None, [None]],
)
def test_prompts_of_other_shapes_are_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidParameterError, match="prompt"):
        llm.generate(prompts)


@pytest.mark.parametrize("messages", ["hi", 5, None, [5], [["a"]], {"role": "user"}, [[], 5]])
def test_messages_of_other_shapes_are_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(InvalidParameterError, match="messages"):
        llm.chat(messages)


def test_results_keep_the_order_of_the_prompts_beyond_the_queue(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=1 + i % 5) for i in range(30)]
    outputs = llm.generate([[i] for i in range(30)], params)
    assert [o.outputs[0].token_ids for o in outputs] == [
        list(range(i + 1, i + 2 + i % 5)) for i in range(30)
    ]


def test_default_params_are_vllms(llm: LLM) -> None:
    (output,) = llm.generate("x")
    assert len(output.outputs[0].token_ids) <= 16


def test_samples_and_logprobs(llm: LLM) -> None:
    params = SamplingParams(n=2, temperature=0, max_tokens=2, logprobs=1, prompt_logprobs=0)
    (output,) = llm.generate("a", params)
    assert [s.index for s in output.outputs] == [0, 1]
    assert output.outputs[0].logprobs is not None
    assert output.outputs[0].logprobs[0][98].decoded_token == "b"
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == 2
    assert output.metrics is not None


def test_chat_renders_the_template_once_without_extra_tokens(llm: LLM) -> None:
    talk = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(talk, GREEDY)
    assert output.prompt == "[user]hi"
    assert output.prompt_token_ids == list(b"[user]hi")
    assert output.outputs[0].text == "jklm"
    assert len(llm.chat([talk, talk], GREEDY)) == 2
    (other,) = llm.chat(talk, GREEDY, chat_template="{{ messages[0].content }}")
    assert other.prompt == "hi"
    with pytest.raises(TemplateError):
        llm.chat(talk, GREEDY, chat_template="{{ raise_exception('no') }}")


WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}


def test_chat_shows_tools_and_reads_calls(llm: LLM) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather"}}
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Sunny.", "tool_call_id": "call_1"},
    ]
    assert llm.tokenizer is not None
    chats = Chats.of(llm.tokenizer)
    prompt = chats.prompt(talk, [WEATHER])
    for part in ('"name": "get_weather"', '"arguments": {}', "Sunny.", "<tools>"):
        assert part in prompt
    (output,) = llm.chat(talk[:1], GREEDY)
    message = output.outputs[0].message
    assert message is not None
    assert (message.text, message.tool_calls) == ("jklm", [])
    output.outputs[0].text = 'So:\n<tool_call>\n{"name": "get_weather"}\n</tool_call>'
    chats.read(output, [WEATHER])
    message = output.outputs[0].message
    assert message is not None
    assert message.text == "So:"
    assert [(c.name, c.arguments) for c in message.tool_calls] == [("get_weather", "{}")]


def test_without_a_tokenizer_only_ids_are_taken(bare: LLM) -> None:
    (output,) = bare.generate([1, 2], GREEDY)
    assert output.outputs[0].token_ids == [3, 4, 5, 6]
    assert output.outputs[0].text == ""
    for call in (bare.generate, bare.stream):
        with pytest.raises(InvalidParameterError, match="no tokenizer"):
            call("text", GREEDY)
    with pytest.raises(InvalidParameterError, match="no tokenizer"):
        bare.chat([{"role": "user", "content": "hi"}])


def test_one_bad_prompt_is_refused_before_anything_runs(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match="prompt: is empty"):
        llm.generate([[1], []], GREEDY)
    with pytest.raises(PromptTooLongError):
        llm.generate([[1], [1] * 1000], GREEDY)
    with pytest.raises(InvalidParameterError, match="expected token ids"):
        llm.generate([[1, 2.5]], GREEDY)
    with pytest.raises(InvalidParameterError, match="2 for 3 prompts"):
        llm.generate([[1], [2], [3]], [GREEDY, GREEDY])
    assert llm.stats().num_steps == 0


def test_stream_gives_deltas_and_closing_it_aborts(llm: LLM) -> None:
    assert "".join(d.text for d in llm.stream("ab", GREEDY)) == "cdef"
    stream = llm.stream("a", SamplingParams(temperature=0, max_tokens=100))
    assert next(stream).text == "b"
    assert llm.stats().num_used_blocks > 0
    stream.close()
    assert llm.stats().num_used_blocks == 0
    with pytest.raises(InvalidParameterError):
        llm.stream([], GREEDY)


def test_streams_share_steps(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=9)
    texts = ["", ""]
    for pair in zip(llm.stream("a", params), llm.stream("A", params), strict=True):
        for i, delta in enumerate(pair):
            texts[i] += delta.text
    assert texts == ["bcdefghij", "BCDEFGHIJ"]
    assert llm.stats().num_steps < 12


async def test_async_streams_run_together_and_cancel(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=9)

    async def text(prompt: str) -> str:
        return "".join([d.text async for d in llm.astream(prompt, params)])

    assert await asyncio.gather(text("a"), text("A")) == ["bcdefghij", "BCDEFGHIJ"]
    stream = llm.astream("a", SamplingParams(temperature=0, max_tokens=100))
    await anext(stream)
    await stream.aclose()
    assert llm.stats().num_used_blocks == 0


def test_threads_share_one_llm(llm: LLM) -> None:
    found: dict[int, list[int]] = {}

    def work(i: int) -> None:
        found[i] = llm.generate([[i, i]], GREEDY)[0].outputs[0].token_ids

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: [i + 1, i + 2, i + 3, i + 4] for i in range(4)}


def test_an_interrupt_leaves_nothing_behind() -> None:
    def script(token: int, position: int) -> int:
        if token == 5:
            raise KeyboardInterrupt
        return token + 1

    llm = LLM.from_engine(null_engine(script))
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1], [20]], SamplingParams(temperature=0, max_tokens=20))
    assert llm.stats().num_used_blocks == 0
    (output,) = llm.generate([[20]], GREEDY)
    assert output.outputs[0].token_ids == [21, 22, 23, 24]


def test_a_failing_step_is_an_engine_error() -> None:
    def script(token: int, position: int) -> int:
        raise RuntimeError("torn")

    with LLM.from_engine(null_engine(script)) as llm, pytest.raises(EngineError, match="torn"):
        llm.generate([[1], [2]], GREEDY)
    with pytest.raises(EngineError, match="closed"):
        llm.generate([[1]], GREEDY)


def test_logits_have_a_row_for_each_token(llm: LLM) -> None:
    logits = llm.logits(list(range(40)))
    assert logits.shape == (40, 260)
    assert logits.dtype.name == "float32"
    assert logits.argmax(axis=1).tolist() == list(range(1, 41))
    with pytest.raises(InvalidParameterError):
        llm.logits([])


def test_importing_octavo_is_cheap_and_llm_needs_no_server_stack() -> None:
    code = """
import sys
import octavo
assert not {"numpy", "tokenizers", "octavo.engine"} & set(sys.modules), "import octavo is heavy"
octavo.LLM
heavy = {"torch", "transformers", "fastapi", "pydantic", "zmq", "huggingface_hub", "rich"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert set(octavo.__all__) <= set(dir(octavo))
assert all(hasattr(octavo, name) for name in octavo.__all__)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
