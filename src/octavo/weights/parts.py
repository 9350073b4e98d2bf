"""Names of the parts of a GGUF file that is split: NAME-00001-of-00003.gguf and so on."""

from __future__ import annotations

import re

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)


def part_names(name: str) -> list[str]:
    """The names of all parts of the file that `name` is a part of, in order; [name] if it is none.

    name: of a file, with or without the folders that lead to it.
    """
    match = _PART.fullmatch(name)
    if match is None:
        return [name]
    stem, number, count = match["stem"], int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        return [name]
    return [f"{stem}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]


def whole_name(name: str) -> str:
    """The name that the file would have in one piece."""
    match = _PART.fullmatch(name)
    return name if match is None else f"{match['stem']}.gguf"
