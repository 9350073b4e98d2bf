"""Suites of other projects: source distributions fetched once, then kept in Octavo's cache."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from octavo.weights.cache import cache_folder, locked


def sdist_files(requirement: str, part: str) -> Path:
    """Folder with the files of "name==version" whose path contains `part`, flat; only those
    directly in it if it ends with a slash, else those of its subfolders too.

    Skips the test if pip cannot get it.
    """
    label = f"{requirement}-{part.strip('/').replace('/', '-')}"
    label += "" if part.endswith("/") else "-tree"
    folder = cache_folder() / "external" / label.replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock", lambda: None):
        if not folder.is_dir():
            _fetch(requirement, folder, part)
    return folder


def _fetch(requirement: str, folder: Path, part: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archive = _download(requirement, Path(scratch))
        target = Path(scratch) / "files"
        target.mkdir()
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if _is_in(member.name, part) else None
                if content is not None:
                    (target / Path(member.name).name).write_bytes(content.read())
        target.rename(folder)  # complete or not there at all


def _is_in(name: str, part: str) -> bool:
    inside = name.partition(part)[2]
    return part in name and not (part.endswith("/") and "/" in inside)


def _download(requirement: str, folder: Path) -> Path:
    """The archive, by the running interpreter's pip."""
    name = requirement.split("==")[0]
    options = ["--no-deps", f"--no-binary={name}", "--no-input", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "--dest",
        str(folder),
        requirement,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if result.returncode != 0 or not archives:
        last = (result.stderr.strip() or "pip said nothing").splitlines()[-1]
        pytest.skip(f"the source distribution {requirement} cannot be downloaded: {last}")
    return archives[0]
