"""Mapping a file into memory, with errors in the project's terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import FormatError, ModelNotFoundError

if TYPE_CHECKING:
    from octavo._native import MappedFile


def map_file(path: Path) -> MappedFile:
    """Map `path` read-only. Raises ModelNotFoundError, or FormatError if it cannot be read."""
    from octavo._native import MappedFile

    try:
        return MappedFile(str(path))
    except FileNotFoundError:
        raise ModelNotFoundError(f"weights: no such file: {path}") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
