"""Who may call and how: keys, TLS, other origins."""

from __future__ import annotations

import logging
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from octavo.errors import InvalidParameterError
from octavo.serving import ServerOptions
from octavo.serving.keys import Keyring, load_keyring, read_key_file
from octavo.serving.options import TlsOptions
from octavo.serving.server import is_open_to_all
from octavo.serving.tls import tls_context
from tests.serving.live_server import live_server

BODY = {"model": "tiny", "prompt": "a", "max_tokens": 2, "temperature": 0}


def test_a_key_file_names_tenants(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# comment\n\nalice sk-one 2.5\n  alice\tsk-two 2.5\nbob sk-three\n")
    keyring = Keyring(read_key_file(str(path)))
    found = [keyring.find(key) for key in ("sk-one", "sk-two", "sk-three", "sk-", "", "sk-onex")]
    assert found == ["alice", "alice", "bob", None, None, None]
    assert keyring.weights == {"alice": 2.5, "bob": 1.0}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no keys"),
        ("# none\n", "holds no keys"),
        ("alice\n", "line 1: got 1 words"),
        ("a k 1\n\nalice secret 1 more\n", "line 3: got 4 words"),
        ("a/b secret\n", "line 1: a name is"),
        ("alice secret heavy\n", "line 1: the weight"),
        ("alice secret 0\n", "line 1: the weight"),
        ("alice secret nan\n", "line 1: the weight"),
        ("alice secret inf\n", "line 1: the weight"),
        ("alice secret\nbob secret\n", "same key twice"),
        ("alice secret 1\nalice other 2\n", "two weights"),
        ("al\xffice secret\n", "a name is"),
    ],
)
def test_a_bad_key_file_is_refused_without_showing_keys(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidParameterError, match=fault) as raised:
        read_key_file(str(path))
    assert "secret" not in str(raised.value)


def test_a_missing_or_binary_key_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(InvalidParameterError, match="cannot read"):
        read_key_file(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidParameterError, match="cannot read"):
        read_key_file(str(path))


def test_plain_keys_are_named_by_their_hash() -> None:
    keyring = load_keyring(("one", "two"), None)
    names = {keyring.find("one"), keyring.find("two")}
    assert len(names) == 2
    assert all(name is not None and name.startswith("key-") for name in names)
    assert keyring.find("on\udce9") is None
    with pytest.raises(InvalidParameterError, match="empty key"):
        load_keyring(("",), None)


def test_both_headers_open_every_door_and_say_whose_it_is(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text("alice sk-alice 2\n")
    options = ServerOptions(
        served_model_names=("tiny",), api_keys=("plain",), api_key_file=str(path)
    )
    caplog.set_level(logging.INFO, "octavo.request")
    with live_server(tiny_model, server=options) as server:
        routes = {
            route.path
            for route in server.app.routes
            if hasattr(route, "methods") and not route.path.startswith(("/health", "/page"))
        } - {"/"}
        for route in sorted(routes):  # no route was forgotten
            for method in ("GET", "POST"):
                assert server.http.request(method, route).status_code == 401, route
        for headers in ({"Authorization": "Bearer sk-alice"}, {"x-api-key": "sk-alice"}):
            answer = server.http.post("/v1/completions", json=BODY, headers=headers)
            assert answer.status_code == 200
        wrong = {"Authorization": "Bearer sk-alic", "x-api-key": "nope"}
        assert server.http.post("/v1/completions", json=BODY, headers=wrong).status_code == 401
        for path_ in ("/health", "/health/live/../../v1/models", "//v1/models", "/HEALTH"):
            expected = (200, 503) if path_ == "/health" else (401, 404)
            assert server.http.get(path_).status_code in expected
    tenants = [r.fields.get("tenant") for r in caplog.records if hasattr(r, "fields")]
    assert tenants.count("alice") == 2
    assert "sk-alice" not in caplog.text


needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)


def make_certificate(folder: Path, name: str, issuer: str | None = None) -> None:
    """name.pem and name.key, self-signed or signed by issuer."""
    sign = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key"] if issuer else []
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-out", f"{name}.pem", *sign),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )


@needs_openssl
def test_tls_with_and_without_client_certificates(tiny_model: Path, tmp_path: Path) -> None:
    make_certificate(tmp_path, "server")
    make_certificate(tmp_path, "client")
    make_certificate(tmp_path, "stranger")
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    tls = TlsOptions(paths["server.pem"], paths["server.key"], paths["client.pem"])
    trust = ssl.create_default_context(cafile=paths["server.pem"])
    known = ssl.create_default_context(cafile=paths["server.pem"])
    known.load_cert_chain(paths["client.pem"], paths["client.key"])
    stranger = ssl.create_default_context(cafile=paths["server.pem"])
    stranger.load_cert_chain(paths["stranger.pem"], paths["stranger.key"])
    options = ServerOptions(served_model_names=("tiny",), tls=tls)
    with live_server(tiny_model, server=options, verify=known) as server:
        assert server.url.startswith("https://")
        answer = server.http.post("/v1/completions", json=BODY)
        assert answer.json()["choices"][0]["text"] == "bc"
        for context in (trust, stranger):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{server.url}/health", verify=context)
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https:", "http:") + "/health")


@needs_openssl
@pytest.mark.parametrize("broken", ["certificate", "key", "client_ca", "encrypted"])
def test_unusable_tls_files_are_named(tmp_path: Path, broken: str) -> None:
    make_certificate(tmp_path, "server")
    files = [str(tmp_path / name) for name in ("server.pem", "server.key", "server.pem")]
    place = {"certificate": 0, "key": 1, "client_ca": 2, "encrypted": 1}[broken]
    files[place] = str(tmp_path / "broken")
    if broken == "encrypted":
        subprocess.run(
            [
                "openssl",
                "ec",
                *("-in", "server.key", "-aes128", "-passout", "pass:x"),
                "-out",
                "broken",
            ],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
    with pytest.raises(InvalidParameterError, match="broken"):
        tls_context(TlsOptions(*files))


def test_other_origins_are_refused_unless_named(tiny_model: Path) -> None:
    preflight = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    options = ServerOptions(
        served_model_names=("tiny",), api_keys=("k",), cors_origins=("https://app.example",)
    )
    with live_server(tiny_model, server=options) as server:
        allowed = server.http.options("/v1/completions", headers=preflight)
        assert allowed.status_code == 200  # a browser sends no key with it
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in allowed.headers
        other = server.http.options(
            "/v1/completions", headers={**preflight, "Origin": "https://evil.example"}
        )
        assert "access-control-allow-origin" not in other.headers
        refused = server.http.get("/v1/models", headers={"Origin": "https://app.example"})
        assert refused.status_code == 401  # and the page may read why
        assert refused.headers["access-control-allow-origin"] == "https://app.example"


def test_without_the_option_no_origin_is_allowed(server: object) -> None:
    answer = server.http.get("/v1/models", headers={"Origin": "https://app.example"})  # type: ignore[attr-defined]
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("host", "keys", "client_ca", "is_open"),
    [
        ("127.0.0.1", (), None, False),
        ("::1", (), None, False),
        ("localhost", (), None, False),
        ("0.0.0.0", (), None, True),
        ("::", (), None, True),
        ("gpu.example.org", (), None, True),
        ("0.0.0.0", ("k",), None, False),
        ("0.0.0.0", (), "ca.pem", False),
    ],
)
def test_a_server_open_to_all_is_known(
    host: str, keys: tuple[str, ...], client_ca: str | None, is_open: bool
) -> None:
    tls = TlsOptions("c.pem", "k.pem", client_ca) if client_ca else None
    options = ServerOptions(host=host, tls=tls)
    assert is_open_to_all(options, load_keyring(keys, None)) is is_open
