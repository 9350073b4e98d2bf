"""The text that inputs are observed on."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from octavo.errors import InvalidParameterError
from octavo.tokenizer import load_tokenizer
from octavo.weights import Checkpoint


def calibration_text(path: Path | None) -> str:
    """A file's text, or about 60 kB of Octavo's own documentation and code and of old books; none
    of it is in the text that `octavo eval` uses. Raises InvalidParameterError for what is no UTF-8
    text."""
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidParameterError("calibration", f"{path}: {error}") from None
    return files("octavo.quantize").joinpath("calibration.txt").read_text(encoding="utf-8")


def calibration_windows(
    checkpoint: Checkpoint, text: str, num_tokens: int, length: int
) -> list[list[int]]:
    """Windows of `length` tokens, spread evenly over the text, num_tokens in all at most.

    Raises InvalidParameterError without a tokenizer or for a text of less than one window.
    """
    tokenizer = load_tokenizer(checkpoint)
    if tokenizer is None:
        raise InvalidParameterError("calibration", "this model has no tokenizer; use --method rtn")
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    length = min(length, len(ids))
    count = min(num_tokens // max(length, 1), len(ids) // max(length, 1))
    if length < 2 or count < 1:
        raise InvalidParameterError("calibration", f"the text has {len(ids)} tokens, too few")
    stride = len(ids) // count
    prefix = list(tokenizer.special.prefix_ids)
    starts = [i * stride for i in range(count)]
    return [[*prefix, *ids[start : start + length - len(prefix)]] for start in starts]
