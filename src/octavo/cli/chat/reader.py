"""Reading what the user types: history, long messages over several lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from octavo.cli.streams import read_lines

BLOCK = '"""'


def read_message(ask: Callable[[str], str], prompt: str = ">>> ", more: str = "... ") -> str:
    """One message. A line that ends with a backslash goes on; \"\"\" opens and closes a block.

    ask: takes a prompt, returns a line without its newline; raises EOFError at the end.
    """
    line = ask(prompt)
    if line.lstrip().startswith(BLOCK):
        return _read_block(line.lstrip().removeprefix(BLOCK), ask, more)
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        line = ask(more)
    return "\n".join([*lines, line])


def _read_block(line: str, ask: Callable[[str], str], more: str) -> str:
    lines = []
    while not line.rstrip().endswith(BLOCK):
        lines.append(line)
        line = ask(more)
    lines.append(line.rstrip().removesuffix(BLOCK))
    return "\n".join(lines).strip("\n")


def terminal_reader(history: Path) -> Callable[[str], str]:
    """`ask` for the process's own stdin: edited and remembered on a terminal, plain in a pipe."""
    if not sys.stdin.isatty():
        lines = read_lines()
        return lambda prompt: _next(lines)
    try:
        import readline
    except ImportError:  # a Python built without it still chats, without arrow keys
        return input
    readline.set_history_length(1000)
    # A history that cannot be read or written is not worth an error.
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def ask(prompt: str) -> str:
        line = input(prompt)
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)
        return line

    return ask


def _next(lines: Iterator[str]) -> str:
    for line in lines:
        return line.rstrip("\n")
    raise EOFError
