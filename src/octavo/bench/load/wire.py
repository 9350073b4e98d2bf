"""HTTP/1.1 as a load client needs it: a connection a request, and answers handed on as they come.

What a client takes of a machine is missing from the server that it measures there. A piece of an
answer goes from the socket through a parser in C straight to its reader; no task wakes for it, and
the moment of its coming is not that of a task's turn. Sockets are read into one buffer: asyncio's
usual way takes 256 kB from the system for each read and gives them back, which costs more than all
else together.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from octavo import __version__

if TYPE_CHECKING:
    from httptools import HttpResponseParser

MAX_HEAD = 2**20  # bytes of an answer before its body
MAX_REDIRECTS = 10
READ_SIZE = 2**16
NAMES_S = 10.0  # for so long a name's addresses are known
REDIRECTS = {"GET": (301, 302, 303, 307, 308), "POST": (307, 308)}  # that keep method and body

Headers = Mapping[str, str]


class AnswerError(OSError):
    """What came was no whole answer."""


class Reader(Protocol):
    """Gets an answer. What it raises ends the connection and comes out of `Wire.send`."""

    def head(self, status: int, headers: Headers) -> None:
        """Once, before any data. Names are in lower case."""

    def data(self, data: bytes) -> None:
        """More of the body."""


class Wire:
    """Sends requests, any number at once."""

    def __init__(self) -> None:
        self._tls: ssl.SSLContext | None = None
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._names: dict[tuple[str, int], tuple[float, list[str]]] = {}

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes, reader: Reader
    ) -> None:
        """Return when the answer has been read. Raises OSError (AnswerError is one) and ValueError
        for an address that is none."""
        for _ in range(MAX_REDIRECTS):
            request = _request(method, urlsplit(url), headers, body)
            exchange = _Exchange(method, request, reader, self._buffer)
            await self._run(urlsplit(url), exchange)
            if exchange.moved_to is None:
                return
            before, url = url, urljoin(url, exchange.moved_to)
            if _origin(urlsplit(before)) != _origin(urlsplit(url)):
                headers = {k: v for k, v in headers.items() if k.lower() != "authorization"}
        raise AnswerError("too many redirects")

    async def _run(self, url: SplitResult, exchange: _Exchange) -> None:
        scheme, host, port = _origin(url)
        tls = self._context() if scheme == "https" else None
        loop = asyncio.get_running_loop()
        addresses = await self._addresses(host, port)
        for place, address in enumerate(addresses, 1):
            try:
                await loop.create_connection(
                    lambda: exchange, address, port, ssl=tls, server_hostname=host if tls else None
                )
                break
            except OSError:
                if place == len(addresses):
                    raise
        try:
            await exchange.over
        finally:
            exchange.close()

    def _context(self) -> ssl.SSLContext:
        self._tls = self._tls or ssl.create_default_context()
        return self._tls

    async def _addresses(self, host: str, port: int) -> list[str]:
        known = self._names.get((host, port))
        if known is not None and time.monotonic() - known[0] < NAMES_S:
            return known[1]
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=1)  # SOCK_STREAM
        found = list(dict.fromkeys(str(info[4][0]) for info in infos))
        self._names[host, port] = time.monotonic(), found
        return found


def _origin(url: SplitResult) -> tuple[str, str, int]:
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{url.geturl()}: expected http:// or https://")
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _request(method: str, url: SplitResult, headers: Headers, body: bytes) -> bytes:
    """The bytes of a request."""
    account, _, netloc = url.netloc.rpartition("@")
    fields = {
        "Host": netloc,
        "User-Agent": f"octavo/{__version__}",
        "Accept": "*/*",
        "Connection": "close",
        **({"Content-Length": str(len(body))} if method == "POST" else {}),
        **({"Authorization": f"Basic {_basic(account)}"} if account else {}),
    }
    given = {name.lower() for name in headers}
    fields = {name: value for name, value in fields.items() if name.lower() not in given}
    target = quote(url.path or "/", safe="/%:@!$&'()*+,;=") + (f"?{url.query}" if url.query else "")
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in (fields | dict(headers)).items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header has a line break")
    return "\r\n".join([*lines, "\r\n"]).encode() + body


def _basic(account: str) -> str:
    return b64encode(unquote(account).encode()).decode()


class _Exchange(asyncio.BufferedProtocol):
    """One request and its answer. over: done when the answer is, fails with what ended it.
    moved_to: where the answer says to ask instead; the reader sees nothing of such a one.
    buffer: holds what was read until it is parsed, which is at once."""

    def __init__(self, method: str, request: bytes, reader: Reader, buffer: memoryview) -> None:
        from httptools import HttpResponseParser  # an extra

        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.moved_to: str | None = None
        self._method, self._request, self._reader = method, request, reader
        self._buffer = buffer
        self._transport: Any = None
        self._parser: HttpResponseParser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._size = 0  # of the head so far
        self._has_head = False

    def close(self) -> None:
        """Wait for nothing more."""
        self.over.cancel()
        if self._transport is not None:
            self._transport.close()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport = transport
        self._transport.write(self._request)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Part of the answer is there."""
        if self.over.done():
            return
        if not self._has_head:
            self._size += nbytes
            if self._size > MAX_HEAD:
                self._end(AnswerError("the answer's head has no end"))
                return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except Exception as error:  # a callback's comes wrapped
            self._end(error.__context__ or AnswerError(f"not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The server is done, or gone."""
        has_length = {"content-length", "transfer-encoding"} & self._headers.keys()
        whole = exc is None and self._has_head and not has_length
        self._end(None if whole else exc or AnswerError("the connection was closed"))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head, or of what may follow a body."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        status = self._parser.get_status_code()
        if status < 200:  # another one follows
            return
        self._has_head = True
        if status in REDIRECTS[self._method] and "location" in self._headers:
            self.moved_to = self._headers["location"]
        else:
            self._reader.head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        """More of the body."""
        if self.moved_to is None and not self.over.done():
            self._reader.data(data)

    def on_message_complete(self) -> None:
        """All has come, or a word before it."""
        if self._has_head:
            self._end(None)
        else:
            self._headers.clear()

    def _end(self, error: BaseException | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)
