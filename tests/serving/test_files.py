"""/v1/files through the official client and by hand; nothing a client sends becomes a path."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.serving import ServerOptions
from octavo.serving.files.store import FileStore
from octavo.serving.files.upload import OVERHEAD_BYTES
from tests.serving.live_server import MODEL, LiveServer, live_server

MAX_FILE, MAX_DATA = 300_000, 700_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def live(tiny_model: Path, folder: Path) -> Iterator[LiveServer]:
    options = ServerOptions(
        served_model_names=(MODEL,),
        data_dir=str(folder),
        max_file_bytes=MAX_FILE,
        max_data_bytes=MAX_DATA,
    )
    with live_server(tiny_model, server=options) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as client:
        yield client
        for file in client.files.list():
            client.files.delete(file.id)


def upload(live: LiveServer, content: bytes = b"{}\n", name: str = "in.jsonl") -> httpx.Response:
    form = {"file": (name, content)}
    return live.http.post("/v1/files", files=form, data={"purpose": "batch"})


def test_life_of_a_file(client: openai.OpenAI, folder: Path) -> None:
    content = b"line\n" * 1000
    file = client.files.create(file=("päth.jsonl", content), purpose="batch")
    assert (file.bytes, file.filename, file.purpose) == (len(content), "päth.jsonl", "batch")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == content
    assert [f.id for f in client.files.list(purpose="batch")] == [file.id]
    assert list(client.files.list(purpose="assistants")) == []
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    assert [p.name for p in (folder / "files").iterdir() if p.is_file()] == []


def test_pages(client: openai.OpenAI) -> None:
    ids = [client.files.create(file=(f"{i}", b"x"), purpose="batch").id for i in range(5)]
    page = client.files.list(limit=2, order="asc")
    assert [f.id for f in page.data] == ids[:2]
    assert page.has_more
    assert [f.id for f in page] == ids  # the client follows the pages
    assert [f.id for f in client.files.list()] == ids[::-1]


def test_a_file_that_expires(client: openai.OpenAI, live: LiveServer) -> None:
    form = {"purpose": "batch", "expires_after[anchor]": "created_at"}
    form["expires_after[seconds]"] = "3600"
    answer = live.http.post("/v1/files", files={"file": ("a", b"x")}, data=form).json()
    assert answer["expires_at"] == answer["created_at"] + 3600


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b/c", "C:\\x\\y", "\x00\n", "", "." * 3000]
)
def test_names_are_no_paths(
    client: openai.OpenAI, live: LiveServer, folder: Path, name: str
) -> None:
    raw = name.encode("ascii", "replace").replace(b"\n", b"").replace(b"\x00", b"")
    body = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\nx\r\n--b--\r\n'
    ) % raw
    answer = live.http.post("/v1/files", content=body, headers=FORM)
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        shown = answer.json()["filename"]
        assert 0 < len(shown) <= 255
        assert "/" not in shown
    assert {p.name for p in folder.iterdir()} == {"files", "batches", "responses", "lock"}


FORM = {"Content-Type": "multipart/form-data; boundary=b"}
FILE_PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n'
PURPOSE_PART = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
END = b"--b--\r\n"


def part(name: str, value: bytes) -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (
        name.encode(),
        value,
    )


BAD_FORMS: list[tuple[str | None, bytes, dict[str, str]]] = [
    ("file", b"", FORM),
    ("file", b"hello", FORM),
    ("file", END, FORM),
    ("file", PURPOSE_PART + END, FORM),
    ("purpose", FILE_PART + END, FORM),
    ("purpose", FILE_PART + part("purpose", b"theft") + END, FORM),
    ("purpose", FILE_PART + part("purpose", b"") + END, FORM),
    ("purpose", FILE_PART + part("purpose", b"\xff") + END, FORM),
    ("purpose", FILE_PART + part("purpose", b"x" * 5000) + END, FORM),
    ("surprise", FILE_PART + PURPOSE_PART + part("surprise", b"1") + END, FORM),
    ("file", FILE_PART + FILE_PART + PURPOSE_PART + END, FORM),
    ("other", FILE_PART.replace(b'"file"', b'"other"') + PURPOSE_PART + END, FORM),
    ("file", FILE_PART + PURPOSE_PART, FORM),
    ("file", FILE_PART[:-3], FORM),
    ("file", b"--b\r\n\r\nx\r\n" + END, FORM),
    ("file", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n" + END, FORM),
    ("file", b"--b\r\n" + b"X: y\r\n" * 500 + b"\r\nx\r\n" + END, FORM),
    ("file", b"--b\r\nX: " + b"y" * 50_000 + b"\r\n\r\nx\r\n" + END, FORM),
    ("file", b"".join(part(f"f{i}", b"1") for i in range(100)) + END, FORM),
    ("file", FILE_PART + END, {"Content-Type": "multipart/form-data"}),
    ("file", FILE_PART + END, {"Content-Type": "multipart/form-data; boundary=" + "b" * 200}),
    ("file", b"{}", {"Content-Type": "application/json"}),
    ("file", b"file=x&purpose=batch", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("file", b"x", {}),
    ("expires_after", FILE_PART + PURPOSE_PART + part("expires_after[seconds]", b"x") + END, FORM),
    (
        "expires_after",
        FILE_PART
        + PURPOSE_PART
        + part("expires_after[anchor]", b"created_at")
        + part("expires_after[seconds]", b"5")
        + END,
        FORM,
    ),
]


@pytest.mark.parametrize(("param", "body", "headers"), BAD_FORMS)
def test_bad_forms(
    live: LiveServer, folder: Path, param: str, body: bytes, headers: dict[str, str]
) -> None:
    answer = live.http.post("/v1/files", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert list((folder / "files").glob("*.*")) == []


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/v1/files?limit=0", 400, "limit"),
        ("/v1/files?limit=x", 400, "limit"),
        ("/v1/files?limit=99999", 400, "limit"),
        ("/v1/files?limit=²", 400, "limit"),
        ("/v1/files?order=up", 400, "order"),
        ("/v1/files?after=file-1", 400, "after"),
        ("/v1/files/file-1", 404, "file_id"),
        ("/v1/files/file-1/content", 404, "file_id"),
        ("/v1/files/..%2f..%2flock", 404, None),
        ("/v1/files/%00", 404, "file_id"),
    ],
)
def test_bad_queries(live: LiveServer, path: str, status: int, param: str | None) -> None:
    answer = live.http.get(path)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_limits_of_size(client: openai.OpenAI, live: LiveServer, folder: Path) -> None:
    assert upload(live, b"x" * MAX_FILE).status_code == 200
    answer = upload(live, b"x" * (MAX_FILE + 1))
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, "file")
    endless = (b"x" * 65536 for _ in range(1000))
    head = [FILE_PART[:-3]]
    answer = live.http.post("/v1/files", content=(*head, *endless), headers=FORM)
    assert answer.status_code == 413
    padded = [b"\r\n" * (OVERHEAD_BYTES + MAX_FILE), FILE_PART, PURPOSE_PART, END]
    assert live.http.post("/v1/files", content=padded, headers=FORM).status_code in (400, 413)
    assert upload(live, b"x" * MAX_FILE).status_code == 200
    answer = upload(live, b"x" * MAX_FILE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    assert list((folder / "files").glob("*.part")) == []


def test_a_full_disk_is_told(
    live: LiveServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = set((folder / "files").glob("*.*"))
    monkeypatch.setattr("octavo.serving.files.upload.os.write", write)
    answer = upload(live)
    monkeypatch.undo()
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    assert set((folder / "files").glob("*.*")) == before


def test_without_a_folder_the_routes_are_off(server: LiveServer) -> None:
    for method, path in [("GET", "/v1/files"), ("POST", "/v1/files"), ("GET", "/v1/batches")]:
        answer = server.http.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "files_not_enabled")


def test_files_survive_a_restart_and_leftovers_go(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1000)
    draft = store.new_draft()
    draft.write_bytes(b"abc")
    kept = store.keep(draft, "a.jsonl", "batch", "someone")
    store.new_draft().write_bytes(b"half an upload")
    (tmp_path / "notes.json").write_text("not ours")
    (tmp_path / "file-bad.json").write_bytes(b"\xff")
    again = FileStore(tmp_path, 1000)
    assert again.all("someone") == [kept]
    assert again.all("") == []
    assert again.path(kept.id).read_bytes() == b"abc"
    assert again.room == 997
    assert list(tmp_path.glob("*.part")) == []
    assert (tmp_path / "notes.json").exists()


def test_an_expired_file_is_gone(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1000)
    draft = store.new_draft()
    draft.write_bytes(b"abc")
    kept = store.keep(draft, "a", "batch", "", lifetime_s=0)
    assert store.all("") == []
    assert not store.path(kept.id).exists()


def test_an_aborted_upload_leaves_nothing(live: LiveServer, folder: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield FILE_PART
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        live.http.post("/v1/files", content=broken(), headers=FORM)
    live.wait_idle()
    assert upload(live).status_code == 200
    left: Any = [p for p in os.listdir(folder / "files") if p.endswith(".part")]
    assert left == []
