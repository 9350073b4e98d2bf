"""Mapping stored tensor names to canonical ones, by the table of a family."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.stored_names import stored_by

ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
GATED_MLP = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias",
    "model.embed_positions.weight": "position_embd.weight",
    "lm_head.weight": "output.weight",
}
# Buffers that old exports stored; they are computed from the config.
_IGNORED = re.compile(
    r"\.rotary_emb\.inv_freq$|\.(masked_)?attn_bias$|\.attn\.(masked_)?bias$"
    r"|\.attention\.(masked_)?bias$|(^|\.)embeddings\.position_ids$"
)
_INSIDE = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+)")
_LAYER = re.compile(_INSIDE.pattern + r"\.(weight|bias)")

_EXPERT = re.compile(r"(.+\.experts)\.(0|[1-9][0-9]{0,4})\.(.+)")


@dataclass(frozen=True)
class FamilyNames:
    """One family's names.

    layer: module path inside a layer -> canonical name; each has a weight.
    biases: those of `layer`'s keys that have a bias as well; may_bias: those that can have one.
    optional: those of `layer`'s and `plain`'s keys that not every model or layer has. beside: of
    two paths with one canonical name, the one that is used where another tensor (its canonical
    name) is in the layer too.
    experts: module path inside a layer, with * for the expert's number -> canonical name, to which
    the number is added; each has a weight. plain: tensors inside a layer that are no module's
    weight or bias -> canonical name, ending included. rename: other spellings of
    a name's beginning -> the usual ones, endings: of its end. positions: there is a table of
    learned positions. strip: prefix to take off every name; names that start with one of `skip`
    are left out. extra_layers: config.json's key of how many layers behind the last are left out,
    as those that predict further tokens are. top: names outside the layers; needed: the canonical
    ones that must be there.
    """

    layer: Mapping[str, str]
    biases: frozenset[str] = frozenset()
    may_bias: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    beside: Mapping[str, str] = field(default_factory=dict)
    experts: Mapping[str, str] = field(default_factory=dict)
    plain: Mapping[str, str] = field(default_factory=dict)
    rename: tuple[tuple[str, str], ...] = ()
    positions: bool = False
    strip: str = ""
    skip: tuple[str, ...] = ()
    extra_layers: str = ""
    endings: tuple[tuple[str, str], ...] = ()
    top: Mapping[str, str] = field(default_factory=lambda: _TOP)
    needed: frozenset[str] = frozenset({"token_embd.weight", "output_norm.weight"})


def map_by(
    families: Mapping[str, FamilyNames],
    stored: Iterable[str],
    config: Mapping[str, Any],
    where: str,
    files: Mapping[str, str],
) -> dict[str, str]:
    """Stored name -> canonical name, for every tensor that the model uses. families: keyed by
    config.json's model_type. where: the file that errors begin with. files: stored name -> file.

    Raises UnsupportedError for an unknown family, FormatError listing all unexpected and missing
    names at once.
    """
    family = _family(families, config)
    stored = list(stored)
    num_layers = _num_layers(config, len(stored))
    mapped: dict[str, str] = {}
    found: set[str] = set()
    unexpected: list[str] = []
    for name in stored:
        if name.startswith(family.skip) or _IGNORED.search(name):
            continue
        if num_layers <= _layer_of(name) < num_layers + _num_extra(family, config):
            continue
        canonical = _canonical(_usual(name, family), family, num_layers)
        if canonical is None or canonical in found:
            unexpected.append(name)
        else:
            mapped[name] = canonical
            found.add(canonical)
    missing = sorted(_expected(family, num_layers, config) - found)
    told = [stored_by(family, name, missing) or name for name in missing]
    _check(where, [_in(name, files) for name in unexpected], told)
    if config.get("tie_word_embeddings") is True:
        mapped = {name: value for name, value in mapped.items() if value != "output.weight"}
    return mapped


def canonical_by(family: FamilyNames, name: str, num_layers: int) -> str | None:
    """The canonical name of one stored tensor; None for one that the family does not have."""
    return _canonical(_usual(name, family), family, num_layers)


def _usual(name: str, family: FamilyNames) -> str:
    name = name.removeprefix(family.strip)
    for old, new in family.rename:
        if name.startswith(old):
            name = new + name.removeprefix(old)
            break
    for old, new in family.endings:
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _family(families: Mapping[str, FamilyNames], config: Mapping[str, Any]) -> FamilyNames:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in families:
        raise UnsupportedError(
            f"weights: config.json has model_type {model_type!r:.80}, which is not supported yet;"
            f" expected one of {', '.join(families)}"
        )
    return families[model_type]


def _num_layers(config: Mapping[str, Any], num_tensors: int) -> int:
    text_config = config.get("text_config")
    holder = text_config if isinstance(text_config, dict) else config
    value = holder.get("num_hidden_layers", holder.get("n_layer", holder.get("n_layers")))
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= num_tensors:
        raise FormatError(
            f"weights: config.json has num_hidden_layers {value!r:.80}, expected at least 1 and no"
            f" more than the {num_tensors} tensors there are"
        )
    return value


def _layer_of(name: str) -> int:
    match = re.match(r"model\.layers\.(0|[1-9][0-9]{0,4})\.", name)
    return int(match[1]) if match else -1


def _num_extra(family: FamilyNames, config: Mapping[str, Any]) -> int:
    count = config.get(family.extra_layers)
    return count if isinstance(count, int) and 0 < count < 100 else 0


def _canonical(name: str, family: FamilyNames, num_layers: int) -> str | None:
    if name in family.top:
        return family.top[name]
    if (inside := _INSIDE.fullmatch(name)) and inside[2] in family.plain:
        known = int(inside[1]) < num_layers
        return f"blk.{inside[1]}.{family.plain[inside[2]]}" if known else None
    match = _LAYER.fullmatch(name)
    if match is None or int(match[1]) >= num_layers:
        return None
    if expert := _EXPERT.fullmatch(match[2]):
        part = family.experts.get(f"{expert[1]}.*.{expert[3]}")
        known = part is not None and match[3] == "weight"
        return f"blk.{match[1]}.{part}.{expert[2]}.weight" if known else None
    if match[2] not in family.layer:
        return None
    if match[3] == "bias" and match[2] not in family.biases | family.may_bias:
        return None
    return f"blk.{match[1]}.{family.layer[match[2]]}.{match[3]}"


def _expected(family: FamilyNames, num_layers: int, config: Mapping[str, Any]) -> set[str]:
    parts = [f"{name}.weight" for path, name in family.layer.items() if path not in family.optional]
    parts += [f"{family.layer[path]}.bias" for path in family.biases]
    parts += [name for path, name in family.plain.items() if path not in family.optional]
    names = {f"blk.{layer}.{part}" for layer in range(num_layers) for part in parts}
    names |= family.needed
    if family.positions:
        names.add("position_embd.weight")
    if config.get("tie_word_embeddings") is False and "lm_head.weight" in family.top:
        names.add("output.weight")
    return names


def _in(name: str, files: Mapping[str, str]) -> str:
    return f"{name} in {files[name]}" if name in files else name


def _check(where: str, unexpected: list[str], missing: list[str]) -> None:
    if not unexpected and not missing:
        return
    problems = []
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected ({_some(unexpected)})")
    if missing:
        problems.append(f"{len(missing)} missing ({_some(missing)})")
    raise FormatError(f"{where}: tensor names do not fit the config: {', '.join(problems)}")


def _some(names: list[str], limit: int = 8) -> str:
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    # ascii(): names are untrusted, and a lone surrogate could not be printed.
    return ", ".join(ascii(name[:160])[1:-1] for name in names[:limit]) + more
