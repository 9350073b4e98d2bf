"""Every candidate against the logits of the start, which are computed once and kept in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.eval import Estimate, Window, default_text, divergence, open_source, windows_of
from octavo.quantize.recipe import is_quantized
from octavo.weights import Tensor, open_checkpoint

CONTEXT = 512


@dataclass(frozen=True)
class Stored:
    """The reference as a source of logits."""

    name: str
    logits_of: NDArray[np.float32]  # [all scored, vocab]
    windows: Sequence[Window]

    @property
    def vocab_size(self) -> int:
        return int(self.logits_of.shape[1])

    def logits(self, window: Window) -> Iterator[NDArray[np.float32]]:
        """One window's rows."""
        index = next(i for i, one in enumerate(self.windows) if one is window)
        start = sum(len(one.targets) for one in self.windows[:index])
        yield self.logits_of[start : start + len(window.targets)]


def reference(start: Path, weights: str, tokens: int) -> Stored:
    """Computed, unless an earlier run left it beside `start`."""
    file = start.with_name(f"{start.stem}-{weights}-{tokens}.npy")
    with closing(open_source(str(start), weights=weights, context=CONTEXT)) as source:
        ids = source.token_ids(default_text())
        windows = windows_of(ids, CONTEXT, bos=source.bos, max_tokens=tokens)
        if not file.exists():
            shape = (sum(len(window.targets) for window in windows), source.vocab_size)
            partial = file.with_suffix(".partial")
            rows = np.lib.format.open_memmap(partial, "w+", np.float32, shape)
            at = 0
            for window in windows:
                for piece in source.logits(window):
                    rows[at : at + len(piece)] = piece
                    at += len(piece)
            rows.flush()
            partial.rename(file)
    return Stored(start.name, np.load(file, mmap_mode="r"), windows)


@dataclass(frozen=True)
class Judged:
    """A row of the table and its KL, one number a token."""

    row: dict[str, Any]
    token_kl: NDArray[np.float64]

    def beyond(self, other: Judged) -> dict[str, float]:
        """This KL minus another's on the same tokens; the error is that of the pairs."""
        return asdict(Estimate.of(self.token_kl - other.token_kl))


def judge(name: str, path: Path, against: Stored) -> Judged:
    """Run a file. What an earlier run found of the very same one is kept beside it."""
    kept = path.with_suffix(f".{len(against.logits_of)}")
    row_file, kl_file = kept.with_suffix(f"{kept.suffix}.json"), kept.with_suffix(".npy")
    status = path.stat()
    mark = [status.st_size, status.st_mtime_ns]
    if row_file.exists() and (row := json.loads(row_file.read_text("utf-8")))["mark"] == mark:
        return Judged(row | {"name": name}, np.load(kl_file))
    with closing(open_source(str(path), name=name, context=CONTEXT)) as source:
        (found,) = divergence(against, [source], against.windows)
    checkpoint = open_checkpoint(path)
    matrices = [t for t in checkpoint.tensors.values() if _is_body(t)]
    row = {
        "name": name,
        "size_bytes": path.stat().st_size,
        "layer_bits": 8 * sum(t.num_bytes for t in matrices) / sum(t.size for t in matrices),
        "kl": asdict(found.kl),
        "agreement": asdict(found.agreement),
        "perplexity": asdict(found.candidate.perplexity),
        "reference_perplexity": asdict(found.reference.perplexity),
        "mark": mark,
    }
    np.save(kl_file, found.token_kl)
    row_file.write_text(json.dumps(row), encoding="utf-8")
    print(f"{name}: KL {found.kl.mean:.5f}", file=sys.stderr)
    return Judged(row, found.token_kl)


def _is_body(tensor: Tensor) -> bool:
    return tensor.name.startswith("blk.") and is_quantized(tensor)
