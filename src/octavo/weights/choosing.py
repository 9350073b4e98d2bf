"""Which files of a repository on a hub make up a model. The same rules on every hub."""

from __future__ import annotations

import fnmatch
import re

from octavo.errors import ModelNotFoundError

# Without a pattern: the usual trade of size for quality first.
PREFERRED = ("Q4_K_M", "Q4_1", "Q8_0", "Q6_K", "Q5_0", "F16", "BF16")


def choose_gguf(repo: str, names: list[str], pattern: str | None) -> str:
    """The one GGUF file that is meant. Raises ModelNotFoundError listing those there are."""
    ggufs = [name for name in names if name.lower().endswith(".gguf") and "mmproj" not in name]
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
