"""Models from ModelScope, or a mirror of it that MODELSCOPE_ENDPOINT names.

Files land in ModelScope's own cache (MODELSCOPE_CACHE), where its tools find them too. Its client
goes on with what a broken fetch left behind and checks each file's SHA-256 against the listing.
Needs the extra "modelscope".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.weights.cache import Progress
from octavo.weights.choosing import choose_gguf, folder_files, is_folder, parts_of

INSTALL = "pip install 'octavo[modelscope]'"


def fetch_modelscope(
    repo: str, file: str | None, pattern: str | None, progress: Progress | None = None
) -> Path:
    """Path of a GGUF file (of a split one the first part), or of a folder with config.json and
    safetensors files.

    repo: "org/name". file: one file's path in it. pattern: chooses among its GGUF files.
    Raises ModelNotFoundError or DownloadError.
    """
    hub = _client()
    try:
        return _fetch(hub, repo, file, pattern, progress or _ignore)
    except (ModelNotFoundError, DownloadError):
        raise
    except Exception as error:
        raise _translated(hub, repo, error) from error


def _client() -> Any:
    """The client's module. Its own progress bars are off: this one's caller shows progress."""
    try:
        with _environment(TQDM_DISABLE="1"):  # read when tqdm is imported
            import modelscope_hub
    except ImportError:
        raise DownloadError(
            f"sources: fetching from ModelScope needs its client; {INSTALL}"
        ) from None
    return modelscope_hub


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _fetch(hub: Any, repo: str, file: str | None, pattern: str | None, progress: Progress) -> Path:
    endpoint = os.environ.get("MODELSCOPE_ENDPOINT") or None
    api = hub.HubApi(hub.HubConfig(), endpoint=endpoint)  # reads the environment as it is now
    files = {entry.path: entry for entry in api.list_repo_files(repo, "model")}
    names = list(files)
    if file is None and pattern is None and is_folder(names):
        wanted = folder_files(names)
        return _download(hub, api, repo, [files[name] for name in wanted], progress)[0].parent
    chosen = file or choose_gguf(repo, names, pattern)
    if chosen not in files:
        raise ModelNotFoundError(f"sources: {repo} on ModelScope has no file '{chosen}'")
    parts = parts_of(repo, names, chosen)
    return _download(hub, api, repo, [files[name] for name in parts], progress)[0]


def _download(
    hub: Any, api: Any, repo: str, files: Sequence[Any], progress: Progress
) -> list[Path]:
    total = sum(int(entry.size or 0) for entry in files)
    label = f"fetching {repo}" + (f"/{files[0].path}" if len(files) == 1 else "")
    paths, done = [], 0
    for entry in files:
        bar = _bar_class(hub.ProgressCallback, progress, done, total, label)
        path = api.downloader.download_file(
            repo,
            "model",
            entry.path,
            expected_sha256=entry.sha256,
            file_size=entry.size,
            progress_callbacks=[bar],
        )
        paths.append(Path(path))
        done += int(entry.size or 0)
        progress(done, total, label)
    return paths


def _bar_class(base: Any, progress: Progress, before: int, total: int, label: str) -> type[Any]:
    """A callback of the client's that reports to `progress`."""

    class Bar(base):  # type: ignore[misc]
        def __init__(self, filename: str, file_size: int) -> None:
            super().__init__(filename, file_size)
            self._done = before

        def update(self, size: int) -> None:
            self._done += size
            progress(min(self._done, total), total, label)

    return Bar


def _ignore(_done: int, _total: int, _label: str) -> None:
    return


def _translated(hub: Any, repo: str, error: Exception) -> Exception:
    """The client's error as one of ours."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if isinstance(error, hub.NotExistError):
        return ModelNotFoundError(
            f"sources: ModelScope has no model '{repo}' that you may read ({first}); for a private"
            " one set MODELSCOPE_API_TOKEN"
        )
    where = os.environ.get("MODELSCOPE_ENDPOINT") or "ModelScope"
    return DownloadError(
        f"sources: cannot fetch '{repo}' from {where}: {first};"
        " check the network, MODELSCOPE_ENDPOINT and MODELSCOPE_API_TOKEN"
    )
