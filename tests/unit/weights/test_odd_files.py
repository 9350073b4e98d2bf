"""What may stand where a model's small file is expected, and is none: each an error that names it,
never a wait, an endless read, or the system's own error."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from octavo.errors import DownloadError, FormatError, OctavoError
from octavo.small_file import check_small, read_small
from octavo.tokenizer.huggingface import read_object, read_templates
from octavo.weights import open_checkpoint
from octavo.weights.cache import locked

TINY = Path(__file__).parents[2] / "golden" / "tiny" / "llama"


def put(path: Path, kind: str) -> None:
    """Something that is no such file in its place."""
    path.unlink(missing_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "loop":
            path.symlink_to(path)
        case "deep":
            path.write_text("[" * 100_000)
        case "text":
            path.write_bytes(b'{"a": "\xe9"}')


ODD = ("folder", "pipe", "device", "huge")


@pytest.mark.parametrize("kind", [*ODD, "loop", "deep", "text"])
@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "modules.json", "model.safetensors.index.json"],
)
def test_a_folder_with_an_odd_file_is_refused_by_its_name(tmp_path: Path, name: str, kind: str):
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    if name.endswith("index.json"):
        (folder / "model.safetensors").unlink()
    put(folder / name, kind)
    if kind == "loop" and name != "config.json":
        return  # as if there were none
    with pytest.raises(OctavoError, match=name):
        open_checkpoint(folder)


@pytest.mark.parametrize("kind", ODD)
def test_odd_files_of_a_tokenizer_are_refused(tmp_path: Path, kind: str):
    put(tmp_path / "tokenizer_config.json", kind)
    with pytest.raises(FormatError, match=r"tokenizer_config\.json"):
        read_object(tmp_path / "tokenizer_config.json")
    put(tmp_path / "x", kind)
    with pytest.raises(FormatError, match="x: "):
        check_small(tmp_path / "x", 100)
    if kind == "huge":
        put(tmp_path / "chat_template.jinja", kind)
        with pytest.raises(FormatError, match="chat_template"):
            read_templates(tmp_path, {})


def test_a_small_file_is_read(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_small(tmp_path / "x", 5) == b"12345"
    with pytest.raises(FormatError, match="has 5 bytes, expected at most 4"):
        read_small(tmp_path / "x", 4)
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        read_small(tmp_path / "y")


def test_a_cache_that_cannot_be_locked_says_what_to_do(tmp_path: Path):
    with (
        pytest.raises(DownloadError, match=r"Is a directory; set OCTAVO_CACHE"),
        locked(tmp_path, lambda: None),
    ):
        pass
