"""A small HTTP server that speaks the part of the Hugging Face hub that fetching a model needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """repos: "org/name" -> file name -> content. log: "METHOD path" of every request."""

    repos: dict[str, dict[str, bytes]]
    url: str = ""
    log: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.log.append(f"{self.command} {path}")
        status, headers, body = self._route(path.split("/"))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _route(self, parts: list[str]) -> tuple[int, dict[str, str], bytes]:
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            return self._api("/".join(parts[2:4]), parts[4:])
        if len(parts) >= 5 and parts[2] == "resolve":
            return self._file("/".join(parts[:2]), "/".join(parts[4:]))
        return 404, {}, b"{}"

    def _api(self, repo: str, rest: list[str]) -> tuple[int, dict[str, str], bytes]:
        files = self.hub.repos.get(repo)
        if files is None:
            return 401, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        siblings = [{"rfilename": name} for name in files]
        answer: Any = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}
        if rest[:1] == ["tree"]:
            answer = [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                for name, data in files.items()
            ]
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def _file(self, repo: str, name: str) -> tuple[int, dict[str, str], bytes]:
        data = self.hub.repos.get(repo, {}).get(name)
        if data is None:
            code = "EntryNotFound" if repo in self.hub.repos else "RepoNotFound"
            return 404, {"X-Error-Code": code, "X-Repo-Commit": COMMIT}, b""
        return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{_etag(data)}"'}, data


def _etag(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@contextmanager
def fake_hub(repos: dict[str, dict[str, bytes]]) -> Iterator[FakeHub]:
    """Serve `repos` on a free port of the loopback interface."""
    hub = FakeHub(repos)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
