"""The standard streams of a command, and the texts that it reads."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from octavo.cli.errors import drop, report_system, usage_error


def prepare() -> None:
    """Open what the caller has closed, so that no file of ours gets its number: reading from it and
    writing the answer to it fail, writing to stderr is lost. What a stream's encoding cannot say
    becomes a question mark, and ASCII alone is taken for a locale that was never set."""
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        _open_closed(number, mode)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        encoding = codecs.lookup(stream.encoding).name
        stream.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8" if encoding == "ascii" else encoding, errors="replace"
        )


def finish() -> None:
    """Write what is still held, while a full disk can be told. Raises SystemExit if it is."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        raise SystemExit(141) from None
    except OSError as error:
        report_system(error)
        raise SystemExit(1) from None


def read_lines() -> Iterator[str]:
    """Lines of standard input, with their ends. What is not UTF-8 text is wrong usage."""
    try:
        for line in sys.stdin.buffer:
            yield line.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        usage_error(f"standard input: {_why(error)}")


def read_file(path: Path, option: str) -> str:
    """The text of a file that `option` names. What is not UTF-8 text is wrong usage."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        usage_error(f"{option}: {path}: {_why(error)}")


def _why(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"expected UTF-8 text, but byte {error.start} is 0x{error.object[error.start]:02x}"


def _open_closed(number: int, mode: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, mode)  # takes the lowest number that is free
