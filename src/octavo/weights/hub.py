"""Models from the Hugging Face hub, or a mirror of it that HF_ENDPOINT names.

Files land in huggingface_hub's own cache (HF_HOME), where other tools find them too. It goes on
with what a broken fetch left behind; large files are named by their SHA-256 there, which is checked
here once they have come.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.weights.cache import Progress, sha256_of
from octavo.weights.choosing import choose_gguf, folder_files, is_folder, parts_of

CLOCK_SLACK_S = 1.0
"""The file system's clock may be behind the process's."""


def fetch_hub(
    repo: str, file: str | None, pattern: str | None, progress: Progress | None = None
) -> Path:
    """Path of a GGUF file (of a split one the first part), or of a folder with config.json and
    safetensors files.

    repo: "org/name". file: one file's path in it. pattern: chooses among its GGUF files.
    Raises ModelNotFoundError or DownloadError.
    """
    if file is None:
        names = _translated(repo, lambda: _list_files(repo))
        if pattern is None and is_folder(names):
            return _translated(repo, lambda: _download_folder(repo, names, progress))
        files = parts_of(repo, names, choose_gguf(repo, names, pattern))
    else:
        files = parts_of(repo, None, file)
    paths = [_fetch_file(repo, name, progress) for name in files]
    return paths[0]


def _fetch_file(repo: str, name: str, progress: Progress | None) -> Path:
    return _translated(f"{repo}/{name}", lambda: _download_file(repo, name, progress))


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _list_files(repo: str) -> list[str]:
    """Names in the repository; those in the local cache if the hub cannot be asked."""
    from huggingface_hub import HfApi, errors, snapshot_download

    try:
        return HfApi(endpoint=_endpoint()).list_repo_files(repo)
    except errors.HfHubHTTPError:
        raise
    except Exception:  # no connection: the exception's type depends on the HTTP library beneath
        try:
            folder = Path(snapshot_download(repo, local_files_only=True))
        except errors.LocalEntryNotFoundError:
            folder = None
        if folder is None:
            raise
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def _download_file(repo: str, name: str, progress: Progress | None) -> Path:
    from huggingface_hub import hf_hub_download

    bars = _bars(hf_hub_download, progress, f"fetching {repo}/{name}")
    started = time.time()
    path = Path(hf_hub_download(repo, name, endpoint=_endpoint(), **bars))
    _check([path], started, progress or _ignore)
    return path


def _download_folder(repo: str, names: list[str], progress: Progress | None) -> Path:
    from huggingface_hub import snapshot_download

    bars = _bars(snapshot_download, progress, f"fetching {repo}")
    files = [re.sub(r"([*?[])", r"[\1]", name) for name in folder_files(names)]
    started = time.time()
    folder = Path(snapshot_download(repo, allow_patterns=files, endpoint=_endpoint(), **bars))
    _check(sorted(folder.iterdir()), started, progress or _ignore)
    return folder


def _check(paths: list[Path], started: float, progress: Progress) -> None:
    """Compare the files that came since `started` with the SHA-256 in their blobs' names.

    Raises DownloadError; the file is removed, so that the next call fetches it again.
    """
    for path in paths:
        blob = path.resolve()
        digest = re.fullmatch(r"[0-9a-f]{64}", blob.name)
        if digest is None or blob.stat().st_ctime < started - CLOCK_SLACK_S:
            continue
        found = sha256_of(blob, progress, f"checking {path.name}")
        if found != blob.name:
            path.unlink()
            blob.unlink(missing_ok=True)
            raise DownloadError(
                f"sources: {path.name}: got a file with sha256 {found}, expected {blob.name};"
                " the file was removed, try again"
            )


def _bars(download: Callable[..., Any], progress: Progress | None, label: str) -> dict[str, Any]:
    """The tqdm_class argument that reports to `progress`, for hub versions that take one."""
    if "tqdm_class" not in inspect.signature(download).parameters:
        return {}
    return {"tqdm_class": bar_class(progress or _ignore, label)}


def _ignore(_done: int, _total: int, _label: str) -> None:
    return


def bar_class(progress: Progress, label: str) -> type[Any]:
    """A tqdm class that shows nothing and reports the sum of all its byte bars to `progress`."""
    from tqdm.auto import tqdm

    counts: dict[int, tuple[int, int]] = {}

    class Bar(tqdm):  # type: ignore[misc,type-arg,unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._is_bytes = kwargs.get("unit") == "B"
            kwargs.pop("name", None)  # the hub's own subclass takes it
            super().__init__(*args, **{**kwargs, "disable": True})
            self._count(int(self.n or 0))

        def update(self, n: float | None = 1) -> bool | None:
            self._count(int(n or 0))
            return None

        def _count(self, more: int) -> None:
            if self._is_bytes:
                before = counts.get(id(self), (0, 0))[0]
                counts[id(self)] = (before + more, int(self.total or 0))
                done, total = map(sum, zip(*list(counts.values()), strict=True))
                progress(done, max(done, total), label)

    return Bar


_Result = TypeVar("_Result")


def _translated(repo: str, action: Callable[[], _Result]) -> _Result:
    """Run `action`; whatever the hub or the HTTP library beneath raises becomes our error."""
    from huggingface_hub import errors

    try:
        return action()
    except DownloadError:
        raise
    except errors.LocalEntryNotFoundError as error:  # not cached, and the hub cannot be reached
        raise _download_error(repo, error) from error
    except (errors.RepositoryNotFoundError, errors.EntryNotFoundError) as error:
        raise ModelNotFoundError(
            f"sources: the hub has no model or file '{repo}' that you may read"
            f" ({_first_line(error)}); for a gated model accept its terms and set HF_TOKEN"
        ) from error
    except Exception as error:
        raise _download_error(repo, error) from error


def _download_error(repo: str, error: Exception) -> DownloadError:
    where = _endpoint() or "the Hugging Face hub"
    return DownloadError(
        f"sources: cannot fetch '{repo}' from {where}: {_first_line(error)};"
        " check the network, HF_ENDPOINT and HF_TOKEN"
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
