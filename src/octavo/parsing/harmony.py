"""The harmony format of gpt-oss: messages with channels, told apart by control tokens.

`openai-harmony` reads it too, but from token ids of one vocabulary, which it downloads; here the
markers are found in the text, whatever the vocabulary.
"""

from __future__ import annotations

import re

from octavo.parsing.lark import Lark
from octavo.parsing.scan import SPACE, Markers, Scan, Show, Steps
from octavo.parsing.stream import Output
from octavo.parsing.tools import Tool

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
CONTROL = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)
FINAL = f"{CHANNEL}final{MESSAGE}"
THOUGHT = f"{CHANNEL}analysis{MESSAGE}"
_HEADER = Markers((MESSAGE, END, CALL, RETURN, START))
_BODY = Markers((END, CALL, RETURN, START))
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_RECIPIENT = re.compile(r"to=functions\.([\w.\-]+)")


def read_answer(scan: Scan, output: Output, with_tools: bool) -> Steps[None]:
    """A whole answer, from right after "<|start|>assistant"."""
    shown: list[str] = []  # what the messages so far were
    while True:
        header: list[str] = []
        found = yield from scan.until(_HEADER, header.append)
        text = "".join(header)
        if found is None:
            if text.strip() and not shown:  # never began a message: the model does without
                output.text(text)
            return
        if found == MESSAGE:
            yield from _message(text, scan, output, with_tools, shown)


def _message(
    header: str, scan: Scan, output: Output, with_tools: bool, shown: list[str]
) -> Steps[None]:
    channel = _CHANNEL.search(header)
    recipient = _RECIPIENT.search(header)
    if recipient and with_tools and (yield from _call(recipient[1], scan, output)):
        shown.append("call")
        return
    is_thought = channel is not None and channel[1] == "analysis"
    show = output.reasoning if is_thought else output.text
    kind = "thought" if is_thought else "text"
    output.thinking = is_thought
    yield from scan.until(_BODY, _on_new_line(show) if kind in shown else show)
    output.thinking = False
    shown.append(kind)


def _on_new_line(show: Show) -> Show:
    """Shows text behind earlier text of its kind."""
    begun = False

    def separated(text: str) -> None:
        nonlocal begun
        show(text if begun else "\n" + text)
        begun = True

    return separated


def _call(name: str, scan: Scan, output: Output) -> Steps[bool]:
    """A call's arguments; False where they are no object."""
    scan.mark()
    yield from scan.run(SPACE)
    empty = yield from scan.literal(*_BODY.texts)
    if empty is None and (yield from scan.peek()) not in ("{", ""):
        scan.rewind()
        return False
    scan.forget()
    output.begin_call(name)
    if empty is not None:
        output.arguments("{}")
        return True
    yield from scan.until(_BODY, output.arguments, trim=True)
    return True


def call_rule(tool: Tool, lark: Lark) -> str:
    """A call, in Lark. It ends with the end of the answer."""
    head = f"{CHANNEL}commentary to=functions.{tool.name} {CONSTRAIN}json{MESSAGE}"
    return f"{lark.text(head)} {lark.json(tool.schema)}"


def thought_rule(lark: Lark) -> str:
    """Messages of the analysis channel, as many as the model likes."""
    head = lark.text(f"{CHANNEL}analysis{MESSAGE}")
    return f"({head} {lark.upto(END)} {lark.text(START + 'assistant')})*"


def opening(prompt: str) -> str:
    """What of the answer the prompt already holds."""
    return prompt.rpartition(f"{START}assistant")[2] if f"{START}assistant" in prompt else ""
