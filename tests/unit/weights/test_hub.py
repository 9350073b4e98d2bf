"""Models from a (fake, local) Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.weights import open_checkpoint, resolve
from octavo.weights.choosing import choose_gguf
from tests.support.fake_hub import FakeHub, fake_hub
from tests.support.gguf_file import sample_gguf, split_files

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny" / "llama"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    gguf = bytes(sample_gguf().data)
    folder = {name: (GOLDEN / name).read_bytes() for name in ("config.json", "model.safetensors")}
    repos = {
        "acme/Tiny-GGUF": {
            "README.md": b"#",
            "tiny-Q4_K_S.gguf": gguf,
            "tiny-Q4_K_M.gguf": gguf,
            "tiny-Q8_0.gguf": gguf,
            "mmproj-Q8_0.gguf": b"",
            "sub/other.gguf": gguf,
            "big-00001-of-00002.gguf": gguf,
        },
        "acme/tiny": {**folder, "pytorch_model.bin": b"no", "consolidated.safetensors": b"no"},
        "acme/empty": {"README.md": b"#"},
    }
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with fake_hub(repos) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("acme/Tiny-GGUF", "tiny-Q4_K_M.gguf"),
        ("acme/Tiny-GGUF:q8_0", "tiny-Q8_0.gguf"),
        ("acme/Tiny-GGUF:*K_S*", "tiny-Q4_K_S.gguf"),
        ("acme/Tiny-GGUF/tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
        ("acme/Tiny-GGUF/sub/other.gguf", "other.gguf"),
    ],
)
def test_a_gguf_file_is_chosen_and_fetched_once(hub: FakeHub, name: str, file: str) -> None:
    seen: list[tuple[int, int, str]] = []
    path = resolve(name, lambda *report: seen.append(report))
    assert path.name == file
    assert open_checkpoint(path).format == "gguf"
    size = path.stat().st_size
    fetched = [report for report in seen if report[2].startswith("fetching acme/Tiny-GGUF/")]
    assert fetched[-1][:2] == (size, size)
    assert seen[-1] == (size, size, f"checking {file}")
    assert resolve(name) == path
    assert sum(line.startswith("GET acme") for line in hub.log) == 1


def test_a_folder_comes_with_what_it_needs_only(hub: FakeHub) -> None:
    path = resolve("acme/tiny")
    assert {file.name for file in path.iterdir()} == {"config.json", "model.safetensors"}
    assert len(open_checkpoint(path).tensors) == 30


def test_an_ambiguous_pattern_lists_the_files(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match=r"2 files match 'Q4_K'.*tiny-Q4_K_M\.gguf"):
        resolve("acme/Tiny-GGUF:Q4_K")
    with pytest.raises(ModelNotFoundError, match="0 files match 'Q9'"):
        resolve("acme/Tiny-GGUF:Q9")


def test_what_the_hub_lacks(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match="no model or file 'acme/absent'"):
        resolve("acme/absent")
    with pytest.raises(ModelNotFoundError, match=r"no model or file 'acme/tiny/absent\.gguf'"):
        resolve("acme/tiny/absent.gguf")
    with pytest.raises(ModelNotFoundError, match=r"neither a \.gguf file nor"):
        resolve("acme/empty")
    with pytest.raises(ModelNotFoundError, match=r"lacks 'big-00002-of-00002\.gguf'"):
        resolve("acme/Tiny-GGUF:big")
    with pytest.raises(ModelNotFoundError, match=r"big-00002-of-00002\.gguf"):
        resolve("acme/Tiny-GGUF/big-00001-of-00002.gguf")


@pytest.mark.parametrize(
    "name", ["acme/Split-GGUF", "acme/Split-GGUF:tiny-F32", "acme/Split-GGUF/tiny-F32-{}.gguf"]
)
def test_all_parts_of_a_split_file_are_fetched(hub: FakeHub, name: str) -> None:
    hub.repos["acme/Split-GGUF"] = split_files("tiny-F32", 3)
    path = resolve(name.format("00001-of-00003"))
    assert path.name == "tiny-F32-00001-of-00003.gguf"
    assert len(open_checkpoint(path).tensors) == 3


def test_a_hub_that_fails(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", refuse)
    with pytest.raises(DownloadError, match=r"cannot fetch 'acme/tiny'.*no route"):
        resolve("acme/tiny")


def test_what_is_cached_needs_no_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    path = resolve("acme/Tiny-GGUF:Q8_0")

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", refuse)
    assert resolve("acme/Tiny-GGUF:Q8_0") == path


def test_choice_among_gguf_files() -> None:
    assert choose_gguf("r", ["a.gguf"], None) == "a.gguf"
    split = ["a-Q8_0-00002-of-00002.gguf", "a-Q8_0-00001-of-00002.gguf", "a-Q4_K.gguf"]
    assert choose_gguf("r", split, None) == choose_gguf("r", split, "Q8_0") == split[1]
    assert choose_gguf("r", ["a-q8_0.gguf", "a-f16.gguf", "a-q3_k.gguf"], None) == "a-q8_0.gguf"
    assert choose_gguf("r", ["a-Q4_K.gguf", "a-Q4_K_M.gguf"], "q4_k") == "a-Q4_K.gguf"
    with pytest.raises(ModelNotFoundError, match=r"choose with 'r:PATTERN' among: a-x\.gguf, b"):
        choose_gguf("r", ["b-x.gguf", "a-x.gguf"], None)


def test_a_fetch_that_broke_off_goes_on(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 100)
    hub.breaks = 1
    path = resolve("acme/Tiny-GGUF:q8_0")
    assert path.read_bytes() == hub.repos["acme/Tiny-GGUF"]["tiny-Q8_0.gguf"]
    assert any(" bytes=" in line for line in hub.log)


@pytest.mark.parametrize("name", ["acme/Tiny-GGUF:q8_0", "acme/tiny"])
def test_a_wrong_file_is_refused_and_fetched_again(hub: FakeHub, name: str) -> None:
    hub.wrong = {"tiny-Q8_0.gguf", "model.safetensors"}
    with pytest.raises(DownloadError, match=r"sha256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        resolve(name)
    hub.wrong = set()
    assert open_checkpoint(resolve(name)).tensors
