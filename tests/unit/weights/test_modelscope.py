"""Models from a (fake, local) ModelScope."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.errors import DownloadError, InvalidParameterError, ModelNotFoundError
from octavo.weights import open_checkpoint, resolve
from tests.support.fake_hub import FakeHub, fake_hub
from tests.support.gguf_file import sample_gguf

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny" / "llama"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    gguf = bytes(sample_gguf().data)
    folder = {name: (GOLDEN / name).read_bytes() for name in ("config.json", "model.safetensors")}
    repos = {
        "acme/Tiny-GGUF": {"tiny-Q4_K_M.gguf": gguf, "tiny-Q8_0.gguf": gguf},
        "acme/tiny": {**folder, "pytorch_model.bin": b"no"},
    }
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "hub"))
    with fake_hub(repos) as server:
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        yield server


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("modelscope:acme/Tiny-GGUF", "tiny-Q4_K_M.gguf"),
        ("modelscope:acme/Tiny-GGUF:q8_0", "tiny-Q8_0.gguf"),
        ("modelscope:acme/Tiny-GGUF/tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
    ],
)
def test_a_gguf_file_is_chosen_and_fetched_once(
    hub: FakeHub, name: str, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int, str]] = []
    path = resolve(name, lambda *report: seen.append(report))
    assert path.name == file
    assert open_checkpoint(path).format == "gguf"
    size = path.stat().st_size
    assert seen[-1] == (size, size, f"fetching acme/Tiny-GGUF/{file}")
    assert resolve(name) == path
    assert sum(line.endswith("acme/Tiny-GGUF/repo") for line in hub.log) == 1


def test_a_folder_comes_with_what_it_needs_only(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_HUB", "modelscope")
    path = resolve("acme/tiny")
    assert {file.name for file in path.iterdir()} == {"config.json", "model.safetensors"}
    assert len(open_checkpoint(path).tensors) == 30


def test_a_fetch_that_broke_off_goes_on(hub: FakeHub) -> None:
    hub.breaks = 1
    path = resolve("modelscope:acme/Tiny-GGUF:q8_0")
    assert path.read_bytes() == hub.repos["acme/Tiny-GGUF"]["tiny-Q8_0.gguf"]
    assert any(" bytes=" in line for line in hub.log)


def test_what_the_hub_lacks(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'acme/absent'"):
        resolve("modelscope:acme/absent")
    with pytest.raises(ModelNotFoundError, match="0 files match 'Q9'"):
        resolve("modelscope:acme/Tiny-GGUF:Q9")
    with pytest.raises(ModelNotFoundError, match=r"has no file 'other\.gguf'"):
        resolve("modelscope:acme/Tiny-GGUF/other.gguf")


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope_hub", None)
    with pytest.raises(DownloadError, match=r"octavo\[modelscope\]"):
        resolve("modelscope:acme/tiny")


def test_an_unknown_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_HUB", "elsewhere")
    with pytest.raises(InvalidParameterError, match="huggingface or modelscope"):
        resolve("acme/tiny")
