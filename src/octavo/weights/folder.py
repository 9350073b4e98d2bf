"""Hugging Face folders: config.json, and one safetensors file or several behind an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from octavo.errors import FormatError, ModelNotFoundError
from octavo.small_file import read_small
from octavo.weights.json_object import parse_json_object
from octavo.weights.names import map_names
from octavo.weights.quantized import assemble, has_quantization, summary
from octavo.weights.safetensors import SafetensorsFile, open_safetensors
from octavo.weights.tensor import Checkpoint, DerivedTensor, Tensor

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
EXTRAS = {
    "generation_config": "generation_config.json",
    "pooling": "1_Pooling/config.json",
    "sentence_transformers": "config_sentence_transformers.json",
    "sentence_bert": "sentence_bert_config.json",
}
"""Files that a folder may have besides; all but the first are sentence-transformers'."""
MODULES = "modules.json"
"""Another one of theirs, whose list `extras` has as {"modules": [...]}."""


def read_json(path: Path) -> dict[str, Any]:
    """An untrusted JSON object from a file. Raises FormatError naming the file."""
    return parse_json_object(read_small(path), str(path))


def _read_extras(path: Path) -> dict[str, dict[str, Any]]:
    there = {name: path / file for name, file in EXTRAS.items() if (path / file).exists()}
    found = {name: read_json(file) for name, file in there.items()}
    if (path / MODULES).exists():
        text = b'{"modules":' + read_small(path / MODULES) + b"}"
        found["modules"] = parse_json_object(text, str(path / MODULES))
    return found


def open_folder(path: Path) -> Checkpoint:
    """Open a folder; tensors get their canonical names. `extras` holds what is there of EXTRAS and
    MODULES.

    Raises ModelNotFoundError, FormatError or UnsupportedError.
    """
    config = read_json(path / "config.json")
    homes = _open_files(path)
    maps = {file.path: file.map for file in homes.values()}
    tensors = _tensors(path, config, homes)
    return Checkpoint(
        path=path,
        format="safetensors",
        metadata=config,
        tensors=tensors,
        file_bytes=sum(file_map.array().size for file_map in maps.values()),
        extras=_read_extras(path),
        maps=tuple(maps.values()),
        notes=(*summary(tensors), *_size_note(path, homes)),
    )


def _tensors(
    path: Path, config: dict[str, Any], homes: dict[str, SafetensorsFile]
) -> dict[str, Tensor]:
    """By canonical name. Weights that lie in several quantized parts become one tensor each."""
    stored: dict[str, DerivedTensor | None] = dict.fromkeys(homes)
    if has_quantization(config):
        stored = assemble(path, config, homes)
    tensors: dict[str, Tensor] = {}
    for stored_name, name in _map(path, config, stored, homes).items():
        derived = stored[stored_name]
        tensors[name] = (
            derived.named(name) if derived else homes[stored_name].tensor(stored_name, name)
        )
    return tensors


def _size_note(path: Path, homes: dict[str, SafetensorsFile]) -> tuple[str, ...]:
    """What an index says of all sizes together is used by nobody and is often wrong (written before
    weights were cast), so that a wrong one is told, not refused. Raises FormatError for no size."""
    if (path / SINGLE_FILE).exists():
        return ()
    where = path / INDEX_FILE
    metadata = read_json(where).get("metadata")
    said = metadata.get("total_size") if isinstance(metadata, dict) else None
    if said is None:
        return ()
    if not isinstance(said, (int, float)) or isinstance(said, bool):
        raise FormatError(f"{where}: metadata total_size: got {said!r:.80}, expected bytes")
    held = sum(file.entries[name].size_bytes for name, file in homes.items())
    if said == held:
        return ()
    return (f"{INDEX_FILE}: total_size says {said:,} bytes, but its tensors have {held:,}",)


def _map(
    path: Path,
    config: dict[str, Any],
    stored: dict[str, DerivedTensor | None],
    homes: dict[str, SafetensorsFile],
) -> dict[str, str]:
    """Stored name -> canonical name; errors name the list of tensors and the file of each."""
    listing = path / (SINGLE_FILE if (path / SINGLE_FILE).exists() else INDEX_FILE)
    files = {name: homes[name].path.name for name in stored if name in homes}
    several = len(set(files.values())) > 1
    return map_names(stored, config, where=str(listing), files=files if several else {})


def _open_files(path: Path) -> dict[str, SafetensorsFile]:
    """Stored tensor name -> the file that holds it."""
    if (path / SINGLE_FILE).exists():
        file = open_safetensors(path / SINGLE_FILE)
        return dict.fromkeys(file.entries, file)
    if (path / INDEX_FILE).exists():
        return _open_shards(path)
    raise ModelNotFoundError(
        f"{path}: has config.json but neither {SINGLE_FILE} nor {INDEX_FILE};"
        " weights in other formats (.bin, .pth) are not read"
    )


def _open_shards(path: Path) -> dict[str, SafetensorsFile]:
    index = read_json(path / INDEX_FILE)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict):
        raise FormatError(f"{path / INDEX_FILE}: weight_map is missing or not an object")
    shards: dict[str, SafetensorsFile] = {}
    for name, file_name in weight_map.items():
        _check_file_name(path, name, file_name)
        if file_name not in shards:
            shards[file_name] = _open_shard(path, name, file_name)
        if name not in shards[file_name].entries:
            raise FormatError(f"{path / file_name}: lacks tensor {name!r}, which the index names")
    _check_shards(path / INDEX_FILE, weight_map, shards)
    return {name: shards[file_name] for name, file_name in weight_map.items()}


def _open_shard(path: Path, name: str, file_name: str) -> SafetensorsFile:
    if not (path / file_name).is_file():
        raise ModelNotFoundError(
            f"{path / INDEX_FILE}: tensor {name!r} is in '{file_name}', which is not in the folder;"
            " is the download complete?"
        )
    return open_safetensors(path / file_name)


def _check_shards(
    index: Path, weight_map: dict[str, str], shards: dict[str, SafetensorsFile]
) -> None:
    """Every tensor of every file is in the index, under this file alone."""
    for file_name, shard in shards.items():
        for name in shard.entries:
            home = weight_map.get(name)
            if home is None:
                raise FormatError(f"{index}: lacks tensor {name!r:.160}, which is in '{file_name}'")
            if home != file_name:
                raise FormatError(
                    f"{index}: tensor {name!r:.160} is in two files, '{home}' and '{file_name}'"
                )


def _check_file_name(path: Path, name: str, file_name: object) -> None:
    plain = isinstance(file_name, str) and file_name == Path(file_name).name and file_name
    if not plain or not str(file_name).endswith(".safetensors"):
        raise FormatError(
            f"{path / INDEX_FILE}: weight_map of {name!r} is {file_name!r:.80}, expected the name"
            " of a .safetensors file in the same folder"
        )
