"""Which formats a template asks for, by snippets of templates; tests/external has whole ones."""

from __future__ import annotations

import pytest

from octavo.parsing import (
    answer_format,
    detect_reasoning,
    detect_tools,
    reasoning_parser_names,
    tool_parser_names,
)

QWEN = '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'


@pytest.mark.parametrize(
    ("template", "tools", "reasoning"),
    [
        ("", "none", "none"),
        ("{{ messages[0].content }}", "none", "none"),
        (QWEN, "hermes", "none"),
        (QWEN + "{% if '</think>' in content %}", "hermes", "think"),
        ("<tool_call>\n<function=f>\n<parameter=p>\n", "qwen3_coder", "none"),
        ("<tool_call>{{ tc.name }}<arg_key>{{ k }}</arg_key></think>", "glm4", "think"),
        ('<|start_header_id|>{"name": "x", "parameters": {}}', "llama3", "none"),
        ("[TOOL_CALLS][{{ call }}]", "mistral", "none"),
        ("[TOOL_CALLS]{{ name }}[ARGS]{{ args }}[THINK]", "mistral_args", "mistral"),
        ("[TOOL_CALLS]{{ name }}[CALL_ID]{{ id }}[ARGS]", "mistral_id", "none"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony", "harmony"),
        ("<think></think><response></response><|tool_call|>", "granite", "granite"),
    ],
)
def test_formats_of_a_template(template: str, tools: str, reasoning: str) -> None:
    assert detect_tools(template) == tools
    assert detect_reasoning(template) == reasoning


def test_every_name_makes_a_format() -> None:
    for tools in tool_parser_names():
        for reasoning in reasoning_parser_names():
            parser = answer_format(tools, reasoning).parser()
            assert [*parser.push("a", []), *parser.finish()]
    with pytest.raises(KeyError):
        answer_format("nonsense", "none")


def test_markers_do_not_begin_with_each_other() -> None:
    """The scanner decides for the first that matches."""
    for tools in tool_parser_names():
        format = answer_format(tools, "none")
        if format.tools is not None:
            markers = format.tools.markers
            assert not [(a, b) for a in markers for b in markers if a != b and b.startswith(a)]
