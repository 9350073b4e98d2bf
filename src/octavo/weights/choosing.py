"""Which files of a repository on a hub make up a model. The same rules on every hub."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection

from octavo.errors import ModelNotFoundError
from octavo.weights.parts import part_names, whole_name

# Without a pattern: the usual trade of size for quality first.
PREFERRED = ("Q4_K_M", "Q4_1", "Q8_0", "Q6_K", "Q5_0", "F16", "BF16")


def choose_gguf(repo: str, names: list[str], pattern: str | None) -> str:
    """The one GGUF file that is meant, of a split one the first part (`parts_of` has all).

    Raises ModelNotFoundError listing the files there are.
    """
    ggufs = [name for name in names if name.lower().endswith(".gguf") and "mmproj" not in name]
    firsts = {whole_name(name): name for name in sorted(ggufs, reverse=True)}
    return firsts[_choose(repo, list(firsts), pattern)]


def parts_of(repo: str, names: Collection[str] | None, file: str) -> list[str]:
    """All files that belong to one: the parts of a split GGUF file, else the file alone.

    names: those in the repository, or None if nobody asked. Raises ModelNotFoundError naming a part
    that is not there.
    """
    parts = part_names(file)
    for part in parts:
        if len(parts) > 1 and names is not None and part not in names:
            raise ModelNotFoundError(f"sources: {repo} lacks '{part}', a part of a split model")
    return parts


def _choose(repo: str, ggufs: list[str], pattern: str | None) -> str:
    if not ggufs:
        raise ModelNotFoundError(
            f"sources: {repo} holds neither a .gguf file nor config.json with safetensors files"
        )
    if pattern is None:
        for quantization in PREFERRED:
            chosen = _matching(ggufs, quantization)
            if len(chosen) == 1:
                return chosen[0]
        chosen = ggufs
    else:
        chosen = _matching(ggufs, pattern)
    if len(chosen) != 1:
        listed = ", ".join(sorted(ggufs)[:20])
        raise ModelNotFoundError(
            f"sources: {repo}: {len(chosen)} files match {pattern or '*.gguf'!r}, expected one;"
            f" choose with '{repo}:PATTERN' among: {listed}"
        )
    return chosen[0]


def _matching(names: list[str], pattern: str) -> list[str]:
    glob = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    matches = [name for name in names if fnmatch.fnmatchcase(name.lower(), glob.lower())]
    # "Q4_K" means Q4_K itself rather than every name that goes on after it.
    ends = (f"{pattern}.gguf".lower(), pattern.lower())
    exact = [name for name in matches if name.lower().endswith(ends)]
    return exact if len(exact) == 1 else matches


def folder_files(names: list[str]) -> list[str]:
    """What a model folder needs, and nothing else: no .bin, no .onnx, no second copy."""
    wanted = re.compile(r"model[\w.-]*\.safetensors|[\w.-]+\.(json|jinja)")
    return [name for name in names if wanted.fullmatch(name)]


def is_folder(names: list[str]) -> bool:
    return "config.json" in names and any(
        name.endswith(".safetensors") for name in folder_files(names)
    )
