"""Between tokenizer.json's pre-tokenizers and the rule names of GGUF (`tokenizer.ggml.pre`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from octavo.errors import UnsupportedError
from octavo.tokenizer.pretokenizers import DIGIT, GPT2, PRE_TOKENIZERS, PreTokenizer


def rule_name(tokenizer: Mapping[str, Any]) -> str:
    """The name of the rule that cuts text as this tokenizer.json does.

    Raises UnsupportedError where no rule has its patterns.
    """
    wanted = PreTokenizer(
        patterns=tuple(_patterns(tokenizer.get("pre_tokenizer"))),
        nfc=any(step.get("type") == "NFC" for step in steps(tokenizer.get("normalizer"))),
        ignore_merges=bool(tokenizer.get("model", {}).get("ignore_merges")),
    )
    for name, rule in PRE_TOKENIZERS.items():
        known = (rule.patterns, rule.nfc, rule.ignore_merges)
        if known == (wanted.patterns, wanted.nfc, wanted.ignore_merges):
            return name
    raise UnsupportedError(
        "convert: tokenizer.json cuts text in a way that no tokenizer.ggml.pre names: "
        f"patterns {wanted.patterns!r:.300}, NFC {wanted.nfc}, ignore_merges {wanted.ignore_merges}"
    )


def pre_tokenizer(rule: PreTokenizer) -> dict[str, Any]:
    """A rule as tokenizer.json's pre_tokenizer."""
    parts: list[dict[str, Any]] = []
    by_library = rule.patterns[-1] == GPT2
    for pattern in rule.patterns[:-1] if by_library else rule.patterns:
        parts.append(_part(pattern))
    parts.append(_byte_level(use_regex=by_library))
    return parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}


def byte_level(**settings: bool) -> dict[str, Any]:
    """A ByteLevel part, as decoder or post-processor."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, **settings}


def steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """A part of tokenizer.json, with sequences laid flat."""
    if not isinstance(part, dict):
        return
    for key in ("normalizers", "pretokenizers", "processors", "decoders"):
        if part.get("type") == "Sequence" and isinstance(part.get(key), list):
            for inner in part[key]:
                yield from steps(inner)
            return
    yield part


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return byte_level(use_regex=use_regex)


def _part(pattern: str) -> dict[str, Any]:
    if pattern == DIGIT:
        return {"type": "Digits", "individual_digits": True}
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _patterns(part: Any) -> Iterator[str]:
    for step in steps(part):
        kind = step.get("type")
        if kind == "Digits" and step.get("individual_digits"):
            yield DIGIT
        elif kind == "ByteLevel" and not step.get("add_prefix_space"):
            if step.get("use_regex", True):
                yield GPT2
        elif kind == "Split" and _isolates(step):
            yield str(step["pattern"]["Regex"])
        else:
            raise UnsupportedError(
                f"convert: tokenizer.json: pre-tokenizer {dict(step)!r:.200} has no form in GGUF"
            )


def _isolates(step: Mapping[str, Any]) -> bool:
    """Whether matches become words and what lies between them stays; keeping only matches is the
    same for patterns that leave nothing out."""
    pattern = step.get("pattern")
    how = (step.get("behavior"), bool(step.get("invert")))
    known = (("Isolated", False), ("Removed", True))
    return isinstance(pattern, dict) and "Regex" in pattern and how in known
