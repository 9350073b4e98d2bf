"""Test suites that come in source distributions: fetched by pip into Octavo's cache, by version."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from octavo.weights.cache import cache_folder, locked


def fetch_sdist(name: str, version: str) -> Path:
    """The unpacked folder. Skips if pip cannot fetch it."""
    folder = cache_folder() / "external" / f"{name}-{version}-sdist"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock", lambda: None):
        if not folder.is_dir():
            _fetch(name, version, folder)
    return folder / f"{name}-{version}"


def _fetch(name: str, version: str, folder: Path) -> None:
    scratch = folder.with_suffix(".part")
    options = ["--no-input", "--disable-pip-version-check", "--quiet", "--no-deps"]
    command = [sys.executable, "-m", "pip", "download", *options, "--no-binary", name]
    done = subprocess.run(
        [*command, "--dest", str(scratch), f"{name}=={version}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"needs the sdist of {name} {version}: {done.stderr[-300:]}")
    with tarfile.open(scratch / f"{name}-{version}.tar.gz") as archive:
        archive.extractall(scratch, filter="data")
    scratch.rename(folder)
