"""From stored tensors to a model's: the parts of quantized weights become one tensor each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.kept import kept_as, kept_bytes
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.parts import Module, Part
from octavo.weights.tensor import DerivedTensor, GroupedTensor, Tensor

if TYPE_CHECKING:
    from octavo.weights.quantized.table import Method
    from octavo.weights.safetensors import SafetensorsFile

_KEYS = ("quantization_config", "compression_config")
_RUNTIME = (".k_scale", ".v_scale", ".q_scale", ".prob_scale")
"""Scales of a quantized KV cache: here it has scales of its own."""


def has_quantization(config: Mapping[str, Any]) -> bool:
    """Whether config.json says that weights are quantized."""
    return _settings(config) is not None


def _settings(config: Mapping[str, Any]) -> Any:
    text = config.get("text_config")
    holders = (config, text if isinstance(text, dict) else {})
    return next((h[k] for h in holders for k in _KEYS if h.get(k) is not None), None)


def assemble(
    path: Path, config: Mapping[str, Any], homes: Mapping[str, SafetensorsFile]
) -> dict[str, DerivedTensor | None]:
    """Names of the model's tensors, as if it were not quantized; None where a tensor is stored so.

    homes: stored name -> its file. Raises FormatError naming file and tensor where parts are
    missing or do not fit, UnsupportedError naming an unknown method, field or value.
    """
    method = _method(path, config)
    modules: dict[str, dict[str, Part]] = {}
    plain: dict[str, DerivedTensor | None] = {}
    for name, file in homes.items():
        ending = _ending(name, method)
        if ending:
            part = Part(file, file.entries[name])
            modules.setdefault(name.removesuffix(ending), {})[ending] = part
        elif not name.endswith(_RUNTIME):
            plain[name] = None
    for module, parts in modules.items():
        if any(mark in parts for mark in method.marks):
            tensor = method.weight(Module(module, parts))
            _add(plain, tensor.found_at(next(iter(parts.values())).where))
        else:
            plain.update(dict.fromkeys(f"{module}{ending}" for ending in parts))
    return plain


def _add(plain: dict[str, DerivedTensor | None], tensor: DerivedTensor) -> None:
    if tensor.name in plain:
        raise FormatError(f"weights: '{tensor.name}' is stored twice, quantized and not")
    plain[tensor.name] = tensor


def _ending(name: str, method: Method) -> str:
    """The longest ending of a part that the name has."""
    return max((e for e in method.endings if name.endswith(e)), key=len, default="")


def _method(path: Path, config: Mapping[str, Any]) -> Method:
    from octavo.weights.quantized.table import METHODS

    where = f"{path / 'config.json'}: quantization_config"
    settings = _settings(config)
    if not isinstance(settings, dict):
        raise FormatError(f"{where}: expected an object, got {settings!r:.80}")
    name = settings.get("quant_method")
    if name is None and "load_in_4bit" in settings:
        name = "bitsandbytes"  # its first files said nothing
    if not isinstance(name, str) or name not in METHODS:
        raise UnsupportedError(
            f"{where}: 'quant_method': got {name!r:.80}, expected one of {', '.join(METHODS)}"
        )
    if config.get("model_type") == "gpt2":
        raise UnsupportedError(f"{where}: GPT-2 stores its weights turned; not read if quantized")
    return METHODS[name](Fields(where, settings))


def summary(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """What quantized weights are held as, and what that costs against the file: one line, or none
    where no weight is quantized."""
    derived = [t for t in tensors.values() if isinstance(t, DerivedTensor)]
    held: dict[str, list[int]] = {}
    for tensor in (t.by_group if isinstance(t, GroupedTensor) else t for t in derived):
        held.setdefault(kept_as(tensor.scheme), []).append(kept_bytes(tensor))
    if not derived:
        return ()
    parts = [f"{len(sizes)} as {name}" for name, sizes in held.items()]
    now = sum(map(sum, held.values())) / 1e6
    stored = sum(part.nbytes for t in derived for part in t.origin.sources) / 1e6
    text = f"quantized weights: {', '.join(parts)}; {now:.1f} MB, {stored:.1f} MB in the file"
    return (text,)
