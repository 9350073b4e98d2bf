"""Opening a model on disk, whatever its format."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from octavo.errors import FormatError, ModelNotFoundError
from octavo.weights.parts import whole_name
from octavo.weights.tensor import Checkpoint


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Open a GGUF file, a folder that holds exactly one, or a Hugging Face folder. A GGUF file that
    is split counts as one; any of its parts will do.

    Only headers are read. Raises ModelNotFoundError, FormatError or UnsupportedError.
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise ModelNotFoundError(f"weights: no such file or folder: {path}")
    if path.suffix == ".safetensors":
        raise FormatError(
            f"{path}: a safetensors file alone lacks config.json; give the folder that holds both"
        )
    from octavo.weights.gguf import open_gguf

    return open_gguf(path)


def _open_folder(path: Path) -> Checkpoint:
    if (path / "config.json").exists():
        from octavo.weights.folder import open_folder

        return open_folder(path)
    files = sorted(path.glob("*.gguf"))
    if len({whole_name(file.name) for file in files}) == 1:
        from octavo.weights.gguf import open_gguf

        return open_gguf(files[0])
    found = ", ".join(file.name for file in files) or "neither"
    raise FormatError(
        f"{path}: expected config.json with safetensors files, or exactly one .gguf file;"
        f" found {found}. Give the path of one .gguf file to choose it."
    )
