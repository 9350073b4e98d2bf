"""The harmony format of gpt-oss: what its messages look like, and what grammars make of them.

An answer is a row of messages, told apart by control tokens:
`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>`.
`harmony_answer` reads it.
"""

from __future__ import annotations

from octavo.parsing.lark import Lark
from octavo.parsing.tools import Tool

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
CONTROL = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)
ROLE, ANALYSIS = "assistant", "analysis"
FINAL = f"{CHANNEL}final{MESSAGE}"
THOUGHT = f"{CHANNEL}{ANALYSIS}{MESSAGE}"


def call_rule(tool: Tool, lark: Lark) -> str:
    """A call, in Lark. It ends with the end of the answer."""
    head = f"{CHANNEL}commentary to=functions.{tool.name} {CONSTRAIN}json{MESSAGE}"
    return f"{lark.text(head)} {lark.json(tool.schema)}"


def thought_rule(lark: Lark) -> str:
    """Messages of the analysis channel, as many as the model likes."""
    head = lark.text(THOUGHT)
    return f"({head} {lark.upto(END)} {lark.text(START + ROLE)})*"


def opening(prompt: str) -> str:
    """What of the answer the prompt already holds."""
    return prompt.rpartition(f"{START}{ROLE}")[2] if f"{START}{ROLE}" in prompt else ""
