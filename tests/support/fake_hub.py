"""A small HTTP server that speaks the parts of Hugging Face's and ModelScope's hubs that fetching a
model needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, dict[str, str], bytes]
JSON = {"Content-Type": "application/json"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """repos: "org/name" -> file name -> content. log: "METHOD path" of every request, with its
    range where it has one. breaks: how many answers with a file's content still break off half way.
    wrong: names of files whose content is not what the listing says."""

    repos: dict[str, dict[str, bytes]]
    breaks: int = 0
    wrong: set[str] = field(default_factory=set)
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
        url = urlsplit(self.path)
        path = unquote(url.path).strip("/")
        wanted = self.headers.get("Range")
        self.hub.log.append(f"{self.command} {path}" + (f" {wanted}" if wanted else ""))
        status, headers, body = self._route(path.split("/"), parse_qs(url.query))
        is_file = status == 200 and "ETag" in headers
        if is_file and wanted:
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            status, body = 206, body[start:]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self._send(body, breaks=is_file and self.hub.breaks > 0)

    def _send(self, body: bytes, breaks: bool) -> None:
        if breaks:
            self.hub.breaks -= 1
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _route(self, parts: list[str], query: dict[str, list[str]]) -> Answer:
        if parts[:3] == ["api", "v1", "models"] and len(parts) >= 6:
            return self._modelscope("/".join(parts[3:5]), parts[5:], query)
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            return self._api("/".join(parts[2:4]), parts[4:])
        if len(parts) >= 5 and parts[2] == "resolve":
            return self._file("/".join(parts[:2]), "/".join(parts[4:]))
        return 404, {}, b"{}"

    def _api(self, repo: str, rest: list[str]) -> Answer:
        files = self.hub.repos.get(repo)
        if files is None:
            return 401, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        siblings = [{"rfilename": name} for name in files]
        answer: Any = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}
        if rest[:1] == ["tree"]:
            answer = [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(name, data)}
                for name, data in files.items()
            ]
        return 200, JSON, json.dumps(answer).encode()

    def _file(self, repo: str, name: str) -> Answer:
        data = self.hub.repos.get(repo, {}).get(name)
        if data is None:
            code = "EntryNotFound" if repo in self.hub.repos else "RepoNotFound"
            return 404, {"X-Error-Code": code, "X-Repo-Commit": COMMIT}, b""
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_etag(name, data)}"'}
        return 200, headers, self._content(name, data)

    def _modelscope(self, repo: str, rest: list[str], query: dict[str, list[str]]) -> Answer:
        """ModelScope's dialect: repo/files lists, repo?FilePath= gives a file."""
        files = self.hub.repos.get(repo)
        if files is None:
            return 404, JSON, b'{"Code": 10010205001, "Message": "not found", "Success": false}'
        if rest == ["repo", "files"]:
            listed = [
                {"Path": n, "Size": len(d), "Sha256": hashlib.sha256(d).hexdigest(), "Type": "blob"}
                for n, d in files.items()
            ]
            answer = {"Code": 200, "Success": True, "Data": {"Files": listed}}
            return 200, JSON, json.dumps(answer).encode()
        name = query.get("FilePath", [""])[0]
        if rest != ["repo"] or name not in files:
            return 404, JSON, b'{"Code": 404, "Message": "no such file", "Success": false}'
        return 200, {"ETag": _etag(name, files[name])}, self._content(name, files[name])

    def _content(self, name: str, data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if name in self.hub.wrong else data


def _etag(name: str, data: bytes) -> str:
    """Large files have their SHA-256, as on the real hub."""
    large = name.endswith((".gguf", ".safetensors"))
    algorithm = hashlib.sha256 if large else hashlib.sha1
    return algorithm(data, usedforsecurity=False).hexdigest()


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
