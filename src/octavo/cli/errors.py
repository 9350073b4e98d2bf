"""How errors look on a terminal: one line, a hint where one helps, and no traceback.

Exit codes are listed in docs/cli.md. Bugs alone keep their traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from octavo.errors import (
    DownloadError,
    MemoryPlanError,
    ModelNotFoundError,
    OctavoError,
    PromptTooLongError,
    UnsupportedError,
)

_HINTS: dict[type[OctavoError], str] = {
    ModelNotFoundError: "octavo pull --list shows the models known by a short name",
    DownloadError: "what arrived is kept and checked; run the same command again",
    MemoryPlanError: "a shorter --max-model-len or a smaller --kv-cache-memory needs less",
    PromptTooLongError: "shorten the prompt, or raise --max-model-len up to the model's context",
    UnsupportedError: "octavo inspect MODEL shows what the file holds",
}


def hint_for(error: OctavoError) -> str | None:
    """One more sentence for a kind of error, or None where the message says it all."""
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), None)


def report(error: OctavoError) -> None:
    """Write `octavo: message` and perhaps `hint: ...` to stderr."""
    message = " ".join(str(error).split()) or type(error).__name__
    print(f"octavo: {message.removeprefix('octavo: ')}", file=sys.stderr)
    if hint := hint_for(error):
        print(f"hint: {hint}", file=sys.stderr)


def usage_error(message: str) -> NoReturn:
    """For options that do not fit together; exits with 2."""
    print(f"octavo: {message}", file=sys.stderr)
    raise typer.Exit(2)


class OctavoGroup(TyperGroup):
    """Turns errors of ours and of the system into a line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OctavoError as error:
            if ctx.params.get("debug"):
                raise
            report(error)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            print(file=sys.stderr)
            raise typer.Exit(130) from error
        except BrokenPipeError as error:
            # The reader left (`| head`): nothing to say, and nothing more to flush.
            drop(sys.stdout)
            raise typer.Exit(141) from error
        except (OSError, MemoryError) as error:
            if ctx.params.get("debug"):
                raise
            report_system(error)
            raise typer.Exit(1) from error


def report_system(error: OSError | MemoryError) -> None:
    """What the system refused: memory, a file, or more output. A stream that is full or closed
    takes nothing more, so what is left for it is dropped."""
    if isinstance(error, MemoryError):
        message = f"out of memory{f': {error}' if str(error) else ''}"
    elif error.filename is None:
        message = f"cannot write or read: {error.strerror or error}"
        drop(sys.stdout)
    else:
        message = f"{os.fsdecode(error.filename)}: {error.strerror}"
    try:
        print(f"octavo: {message}", file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Send to nowhere what a stream still holds and gets."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it has no number, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
