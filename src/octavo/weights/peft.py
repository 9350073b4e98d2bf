"""LoRA adapters as peft stores them: adapter_config.json and adapter_model.safetensors.

A module's change is scale * B A, A [rank, K] and B [N, rank], scale = alpha / rank, or
alpha / sqrt(rank) with rank-stabilised scaling (Kalajdzievski 2023). With DoRA (Liu et al. 2024)
the rows of the changed weight get lengths of their own. A module "to save" is stored whole.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.folder import read_json
from octavo.weights.safetensors import SafetensorsFile, open_safetensors
from octavo.weights.tensor import Tensor

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_PART = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
_MAGNITUDE = re.compile(
    r"(?:base_model\.model\.)?(.+)\.lora_(magnitude_vector)(?:\.default)?(?:\.weight)?"
)
_WHOLE = re.compile(r"(?:base_model\.model\.)?(.+?)(?:\.modules_to_save(?:\.default)?)?\.weight")
_READ = (
    *("use_dora", "modules_to_save"),
    *("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias"),
)
_OF_THE_MAKING = (
    *("auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying"),
    *("eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights"),
    *("layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config"),
    *("megatron_config", "megatron_core", "peft_version", "qalora_group_size", "revision"),
    *("runtime_config", "target_modules", "task_type"),
)
"""What says how the adapter was made or where it belongs: the tensors' names tell."""


@dataclass(frozen=True)
class StoredChange:
    """One module's A and B, under the names that the file has; `module` without peft's prefix.
    magnitude: the rows' lengths [N], with DoRA. Without A, `up` is the whole weight [N, K]."""

    module: str
    down: Tensor | None
    up: Tensor
    scale: float
    magnitude: Tensor | None = None

    @property
    def shown(self) -> Tensor:
        """The tensor that errors name."""
        return self.up if self.down is None else self.down


@dataclass(frozen=True)
class StoredAdapter:
    """An open adapter. `where` is its file of tensors, for errors."""

    where: Path
    changes: tuple[StoredChange, ...]


def open_adapter(folder: Path) -> StoredAdapter:
    """Open an adapter's folder; numbers are not read yet.

    Raises FormatError naming file and tensor or field, or UnsupportedError naming what is more than
    low-rank changes of weights.
    """
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise FormatError(
                f"{folder / name}: no such file; an adapter is a folder with {CONFIG_FILE} and"
                f" {WEIGHTS_FILE}"
            )
    config = _Config(folder / CONFIG_FILE, read_json(folder / CONFIG_FILE))
    file = open_safetensors(folder / WEIGHTS_FILE)
    modules: dict[str, dict[str, str]] = {}
    for name in file.entries:
        if name.endswith(".base_layer.weight"):
            continue  # peft's copy of a head or an embedding it has frozen
        match = _PART.fullmatch(name) or _MAGNITUDE.fullmatch(name)
        if match is None and config.is_saved(saved := _WHOLE.fullmatch(name)):
            assert saved is not None
            modules.setdefault(saved[1], {})["whole"] = name
            continue
        if match is None:
            raise UnsupportedError(
                f"{file.path}: tensor '{_shown(name)}' is not a low-rank change of a weight"
                " (lora_A or lora_B); other parts of adapters are not supported"
            )
        modules.setdefault(match[1], {})[match[2]] = name
    changes = tuple(_change(file, config, module, parts) for module, parts in modules.items())
    if not changes:
        raise FormatError(f"{file.path}: has no tensors")
    return StoredAdapter(file.path, changes)


def _shown(name: str) -> str:
    return ascii(name[:160])[1:-1]


def _change(
    file: SafetensorsFile, config: _Config, module: str, parts: dict[str, str]
) -> StoredChange:
    if "whole" in parts:
        return _saved(file, module, parts)
    if "magnitude_vector" in parts and not config.is_dora:
        name = _shown(parts["magnitude_vector"])
        raise FormatError(f"{file.path}: tensor '{name}' is of DoRA, which {CONFIG_FILE} denies")
    if "A" not in parts or "B" not in parts:
        there, lacking = ("A", "B") if "A" in parts else ("B", "A")
        name = _shown(parts.get(there, next(iter(parts.values()))))
        raise FormatError(f"{file.path}: tensor '{name}' has no lora_{lacking} beside it")
    down = file.tensor(parts["A"], parts["A"])
    up = file.tensor(parts["B"], parts["B"])
    rank = config.rank(module)
    for tensor, axis in ((down, 0), (up, 1)):
        if len(tensor.shape) != 2 or 0 in tensor.shape or tensor.shape[axis] != rank:
            wanted = f"[{rank}, in]" if axis == 0 else f"[out, {rank}]"
            raise FormatError(
                f"{file.path}: tensor '{_shown(tensor.name)}' is {list(tensor.shape)}, expected"
                f" {wanted} by {CONFIG_FILE}"
            )
    return StoredChange(module, down, up, config.scale(module), _magnitude(file, config, up, parts))


def _saved(file: SafetensorsFile, module: str, parts: dict[str, str]) -> StoredChange:
    name = parts["whole"]
    weight = file.tensor(name, name)
    if len(parts) != 1 or len(weight.shape) != 2 or 0 in weight.shape:
        got = f"{list(weight.shape)} beside {len(parts) - 1} low-rank parts"
        raise FormatError(
            f"{file.path}: tensor '{_shown(name)}' is {got}, expected [out, in] alone"
        )
    return StoredChange(module, None, weight, 1.0)


def _magnitude(
    file: SafetensorsFile, config: _Config, up: Tensor, parts: dict[str, str]
) -> Tensor | None:
    if not config.is_dora:
        return None
    name = parts.get("magnitude_vector")
    if name is None:
        raise FormatError(
            f"{file.path}: tensor '{_shown(up.name)}' has no magnitude_vector beside it"
        )
    found = file.tensor(name, name)
    if found.shape != (up.shape[0],):
        got, wanted = list(found.shape), [up.shape[0]]
        raise FormatError(f"{file.path}: tensor '{_shown(name)}' is {got}, expected {wanted}")
    return found


class _Config:
    """adapter_config.json; checks what it says as a whole."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self._path, self._values = path, values
        if values.get("peft_type") != "LORA":
            raise UnsupportedError(self._text("peft_type", "LORA"))
        if values.get("bias", "none") != "none":
            raise UnsupportedError(self._text("bias", "none"))
        for key, value in values.items():
            # What is off or empty changes nothing, known or not.
            if key not in (*_READ, *_OF_THE_MAKING) and value not in (None, False, "", [], {}):
                raise UnsupportedError(self._text(key, "nothing: it is not supported"))
        self._rank = self._number("r", values.get("r"))
        self._alpha = self._number("lora_alpha", values.get("lora_alpha"))
        self._ranks = self._pattern("rank_pattern")
        self._alphas = self._pattern("alpha_pattern")
        self._stable, self.is_dora = self._flag("use_rslora"), self._flag("use_dora")
        self._saved = values.get("modules_to_save") or []
        listed = isinstance(self._saved, list) and all(isinstance(one, str) for one in self._saved)
        if not listed:
            raise FormatError(self._text("modules_to_save", "a list of modules"))
        if not self._rank.is_integer() or any(not r.is_integer() for r in self._ranks.values()):
            raise FormatError(self._text("r", "a whole number"))

    def is_saved(self, match: re.Match[str] | None) -> bool:
        """Whether a weight's module is among those to save."""
        return match is not None and any(
            match[1] == name or match[1].endswith(f".{name}") for name in self._saved
        )

    def _flag(self, key: str) -> bool:
        value = self._values.get(key) or False
        if not isinstance(value, bool):
            raise FormatError(self._text(key, "true or false"))
        return value

    def rank(self, module: str) -> int:
        """The rank of a module's change."""
        return int(_by_pattern(self._ranks, module, self._rank))

    def scale(self, module: str) -> float:
        """What B A is multiplied by."""
        rank, alpha = self.rank(module), _by_pattern(self._alphas, module, self._alpha)
        return alpha / (math.sqrt(rank) if self._stable else rank)

    def _pattern(self, key: str) -> dict[str, float]:
        value = self._values.get(key) or {}
        if not isinstance(value, dict):
            raise FormatError(self._text(key, "an object"))
        for name in value:
            if not re.fullmatch(r"[\w.]+", name):
                raise UnsupportedError(self._text(key, "the ends of modules' names as keys"))
        return {name: self._number(key, one) for name, one in value.items()}

    def _number(self, key: str, value: object) -> float:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not 0 < float(str(value)) <= 1 << 20:
            raise FormatError(self._text(key, "a number above 0"))
        return float(str(value))

    def _text(self, key: str, expected: str) -> str:
        got = f"{self._values.get(key)!r:.80}"
        return f"{self._path}: '{_shown(key)}': got {got}, expected {expected}"


def _by_pattern(values: dict[str, float], module: str, default: float) -> float:
    """peft's rule for keys without special characters: a module's name, or whole words of its
    end."""
    for name, value in values.items():
        if module == name or module.endswith(f".{name}"):
            return value
    return default
