"""The slash commands of `octavo chat`: one function each, in one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import InvalidParameterError

if TYPE_CHECKING:
    from octavo.cli.chat.loop import Chat

SETTINGS: dict[str, Callable[[str], object]] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "max_tokens": int,
    "seed": lambda text: None if text == "none" else int(text),
    "stop": lambda text: () if text == "none" else (text.encode().decode("unicode_escape"),),
}
"""What /set can change: the fields of SamplingParams and how their text is read."""


def run_command(chat: Chat, line: str) -> bool:
    """Carry out one line that starts with a slash. False: leave the program."""
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        raise InvalidParameterError(f"/{name}", "no such command; /help lists them")
    return command(chat, argument.strip()) is not False


def help_text() -> str:
    """A line for each command, from its docstring."""
    lines = [f"  /{name:<8} {(f.__doc__ or '').strip()}" for name, f in COMMANDS.items()]
    tail = [
        '  A line ending in \\ goes on; """ opens and closes a longer block.',
        "  Ctrl-C stops an answer; Ctrl-D leaves.",
    ]
    return "\n".join([*lines, *tail])


def _help(chat: Chat, argument: str) -> None:
    """show this"""
    chat.say(help_text())


def _reset(chat: Chat, argument: str) -> None:
    """forget the conversation, keep the system message"""
    chat.conversation.reset()
    chat.say("forgotten")


def _system(chat: Chat, argument: str) -> None:
    """TEXT: set the system message and start anew; without TEXT show it; "none" removes it"""
    if not argument:
        chat.say(chat.conversation.system or "no system message")
        return
    chat.conversation.system = None if argument == "none" else argument
    chat.conversation.reset()
    chat.say("system message set; the conversation starts anew")


def _set(chat: Chat, argument: str) -> None:
    """NAME VALUE: change a sampling setting; without them show all"""
    if not argument:
        chat.say("\n".join(f"  {name} = {getattr(chat.params, name)!r}" for name in SETTINGS))
        return
    name, _, text = argument.replace("=", " ", 1).partition(" ")
    read = SETTINGS.get(name)
    if read is None:
        raise InvalidParameterError("/set", f"no setting {name!r}; there are {', '.join(SETTINGS)}")
    try:
        value = read(text.strip())
    except ValueError as error:
        raise InvalidParameterError(name, f"cannot read {text.strip()!r}") from error
    # Any, because the field is chosen at run time; SamplingParams checks the value.
    chat.params = dataclasses.replace(chat.params, **{name: value})  # type: ignore[arg-type]
    chat.say(f"{name} = {value!r}")


def _stats(chat: Chat, argument: str) -> None:
    """show speed of the last answer and how full the context is"""
    timing = chat.session.last.timing
    used = timing.prompt_tokens + timing.output_tokens
    chat.say(f"{timing}\ncontext: {used} of {chat.session.max_model_len} tokens")


def _save(chat: Chat, argument: str) -> None:
    """FILE: write the conversation as JSON"""
    path = _path("/save", argument)
    try:
        chat.conversation.save(path)
    except OSError as error:
        raise InvalidParameterError("/save", str(error)) from error
    chat.say(f"saved {len(chat.conversation.turns)} messages to {path}")


def _load(chat: Chat, argument: str) -> None:
    """FILE: go on with a saved conversation"""
    path = _path("/load", argument)
    chat.conversation.load(path)
    chat.say(f"loaded {len(chat.conversation.turns)} messages from {path}")


def _undo(chat: Chat, argument: str) -> None:
    """take back the last question and its answer"""
    text = chat.conversation.undo()
    chat.say("nothing to take back" if text is None else f"taken back: {text}")


def _retry(chat: Chat, argument: str) -> None:
    """answer the last question once more"""
    text = chat.conversation.undo()
    if text is None:
        chat.say("nothing to answer")
    else:
        chat.turn(text)


def _exit(chat: Chat, argument: str) -> bool:
    """leave (so do /quit, /bye and Ctrl-D)"""
    return False


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise InvalidParameterError(command, "name a file")
    return Path(argument).expanduser()


COMMANDS: dict[str, Callable[[Chat, str], bool | None]] = {
    "help": _help,
    "reset": _reset,
    "system": _system,
    "set": _set,
    "stats": _stats,
    "save": _save,
    "load": _load,
    "undo": _undo,
    "retry": _retry,
    "exit": _exit,
}
ALIASES = {"quit": "exit", "bye": "exit", "?": "help", "clear": "reset"}
