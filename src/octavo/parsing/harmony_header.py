"""The header of a harmony message: to whom and on which channel. Malformed ones lose no text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from octavo.parsing.harmony import CHANNEL, CONSTRAIN, MESSAGE, ROLE
from octavo.parsing.scan import Scan, Steps

_BLANK = re.compile(r"[ \t\r\n\f]*")
_WORD = re.compile(r"[^\s<]*")
_TO, _FUNCTIONS = "to=", "functions."


@dataclass(frozen=True)
class Header:
    """channel, recipient: None where there is none. text: as the model wrote it, with a role, from
    behind "<|start|>", where it is regular: well-formed and followed by "<|message|>"; else "", and
    what follows it is the message's content."""

    channel: str | None = None
    recipient: str | None = None
    text: str = ""

    @property
    def is_regular(self) -> bool:
        """Whether "<|message|>" closed it."""
        return bool(self.text)

    @property
    def repaired(self) -> str:
        """As the model should have written it."""
        to = f" {_TO}{self.recipient}" if self.recipient else ""
        return f"{ROLE}{to}{CHANNEL}{self.channel}" if self.channel else f"{ROLE}{to}"


def read_header(scan: Scan, started: bool) -> Steps[Header]:
    """The next header, "<|message|>" included. started: right behind "<|start|>", so a role comes
    first. What cannot be part of a header is left alone.

        [role] [recipient] ["<|channel|>" name [recipient]] [["<|constrain|>"] type] "<|message|>"
    """
    scan.mark()
    yield from scan.run(_BLANK)
    role = (yield from _role(scan)) if started else ""
    recipient = yield from _recipient(scan)
    channel = None
    if (yield from scan.literal(CHANNEL)):
        yield from scan.run(_BLANK)
        channel = (yield from _word(scan)) or None
        recipient = recipient or (yield from _recipient(scan))
        yield from _unfinished(scan)
    yield from _type(scan, known=channel is not None or recipient is not None)
    text = scan.taken()
    scan.forget()
    if not (yield from scan.literal(MESSAGE)):
        return Header(channel, recipient)
    return Header(channel, recipient, text if role else f"{ROLE} {text}")


def _word(scan: Scan) -> Steps[str]:
    """A word and the blanks behind it."""
    word = yield from scan.run(_WORD)
    yield from scan.run(_BLANK)
    return word


def _role(scan: Scan) -> Steps[str]:
    """The role, "" if it was forgotten."""
    forgotten = (yield from scan.peek(len(_TO))) == _TO
    return "" if forgotten else (yield from _word(scan))


def _recipient(scan: Scan) -> Steps[str | None]:
    found = yield from scan.literal(_TO, _FUNCTIONS)
    if found is None:
        return None
    name = yield from _word(scan)
    return (name if found == _TO else found + name) or None


def _unfinished(scan: Scan) -> Steps[None]:
    """Half a recipient, where the answer breaks off."""
    rest = yield from scan.peek(len(_FUNCTIONS))
    if rest and (_TO.startswith(rest) or _FUNCTIONS.startswith(rest)):
        scan.skip(len(rest))


def _type(scan: Scan, known: bool) -> Steps[None]:
    """The type of the content. Without its marker it is one word before "<|message|>", in a header
    that is known to be one."""
    if (yield from scan.literal(CONSTRAIN)):
        yield from scan.run(_BLANK)
        yield from _word(scan)
        return
    if not known:
        return
    scan.mark()
    yield from _word(scan)
    if (yield from scan.peek(len(MESSAGE))) == MESSAGE:
        scan.forget()
    else:
        scan.rewind()
