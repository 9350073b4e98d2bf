"""Chat templates of 71 real models: the formats found in them, and histories with tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import TemplateError
from octavo.parsing import Tool, detect_reasoning, detect_tools, dialect_of, shaped
from octavo.tokenizer.template import ChatTemplates
from tests.external.test_tokenizer_vectors import REQUIREMENT
from tests.support.sdist import sdist_files

FORMATS = {
    "Bielik-11B-v3.0-Instruct": ("hermes", "think"),
    "ByteDance-Seed-OSS": ("seed_oss", "seed_oss"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("cohere", "cohere"),
    "GLM-4.6": ("glm4", "think"),
    "Kimi-K2-Thinking": ("kimi_k2", "think"),
    "MiniMax-M2": ("minimax_m2", "think"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral_id", "none"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3_coder", "think"),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron", "think"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", "none"),
    "Qwen-QwQ-32B": ("hermes", "think"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", "none"),
    "Qwen-Qwen3-0.6B": ("hermes", "think"),
    "Qwen3-Coder": ("qwen3_coder", "none"),
    "Qwen3.5-4B": ("qwen3_coder", "think"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek_v3", "think"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek_v3", "think"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v31", "think"),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek_v32", "think"),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v4", "think"),
    "fireworks-ai-llama-3-firefunction-v2": ("firefunction", "none"),
    "google-gemma-2-2b-it": ("none", "none"),
    "google-gemma-4-31B-it": ("none", "gemma4"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "granite"),
    "ibm-granite-granite-4.0": ("hermes", "none"),
    "llama-cpp-deepseek-r1": ("deepseek_v3", "think"),
    "meetkai-functionary-medium-v3.1": ("functionary", "none"),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3", "none"),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3", "none"),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3", "none"),
    "microsoft-Phi-3.5-mini-instruct": ("none", "none"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral_args", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "none"),
    "moonshotai-Kimi-K2": ("kimi_k2", "none"),
    "openai-gpt-oss-120b": ("harmony", "harmony"),
    "unsloth-Apriel-1.5": ("apriel", "none"),
    "unsloth-mistral-Devstral-Small-2507": ("mistral_args", "none"),
}
WEATHER = Tool(
    "get_weather",
    "The weather.",
    {"type": "object", "properties": {"city": {"type": "string", "description": "Where."}}},
)
REFUSALS = {
    "fireworks-ai-llama-3-firefunction-v2": "'functions' is undefined",  # its own names
    "llama-cpp-deepseek-r1": "generator is not JSON",  # needs llama.cpp's own tojson
}
"""Baseline: templates that fail whatever they are given, and how."""


class TemplateTokenizer:
    """As much of a tokenizer as a dialect needs."""

    def __init__(self, source: str) -> None:
        self._templates = ChatTemplates({"default": source}, {"bos_token": "", "eos_token": "</s>"})

    def template_source(self, with_tools: bool) -> str | None:
        return self._templates.source(with_tools)

    def encode(self, text: str, **options: Any) -> list[int]:
        return [0, 0]

    def token_bytes(self, token_id: int) -> bytes:
        return b""

    def render_chat(self, messages: Any, tools: Any = None) -> str:
        return self._templates.render(
            None, messages=messages, tools=tools, add_generation_prompt=True
        )


def called(call_id: str, city: str) -> dict[str, Any]:
    function = {"name": WEATHER.name, "arguments": f'{{"city": "{city}"}}'}
    return {"id": call_id, "type": "function", "function": function}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": WEATHER.name, "content": text}


HISTORY = [
    {"role": "user", "content": "And the weather?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [called("call_one", "Paris"), called("call_two", "Oslo")],
    },
    result("call_one", "Sunny."),
    result("call_two", "Rainy."),
]


def templates() -> dict[str, Path]:
    return {
        path.stem: path
        for path in sdist_files(REQUIREMENT, "/llama.cpp/models/templates/").glob("*.jinja")
    }


def test_formats_are_found() -> None:
    paths = templates()
    found = {
        name: (detect_tools(source), detect_reasoning(source))
        for name in FORMATS
        if (source := paths[name].read_text("utf-8"))
    }
    assert found == FORMATS


def test_two_calls_and_their_results_are_in_every_prompt() -> None:
    """In order, with arguments that are JSON or XML, never Python's or JSON in a string."""
    assert len(templates()) > 60
    for name, path in sorted(templates().items()):
        tokenizer: Any = TemplateTokenizer(path.read_text("utf-8"))
        messages = shaped(HISTORY, (WEATHER,), dialect_of(tokenizer))
        if name in REFUSALS:
            with pytest.raises(TemplateError, match=REFUSALS[name]):
                tokenizer.render_chat(messages, tools=[WEATHER.for_template()])
            continue
        prompt = tokenizer.render_chat(messages, tools=[WEATHER.for_template()])
        for word in (WEATHER.name, "The weather.", "Paris", "Oslo", "Sunny.", "Rainy."):
            assert word in prompt, (name, word)
        assert prompt.index("Paris") < prompt.index("Sunny."), name
        assert prompt.index("Oslo") < prompt.index("Rainy."), name
        assert "'city': 'Paris'" not in prompt, name
        assert '{\\"city' not in prompt, name
