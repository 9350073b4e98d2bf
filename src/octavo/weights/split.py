"""Models split into several GGUF files, as llama.cpp's gguf-split writes them: each part says which
of how many it is; the first has the metadata; the names tell where the others are."""

from __future__ import annotations

from octavo.errors import FormatError, ModelNotFoundError
from octavo.weights.gguf import GgufFile, open_file
from octavo.weights.parts import part_names

COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"


def open_parts(file: GgufFile) -> list[GgufFile]:
    """All parts of the model that `file` is a part of, in order; [file] if it is not split.

    Raises ModelNotFoundError for a part that is not there and FormatError for parts that do not
    belong together, both naming the file.
    """
    count = max(1, file.count(COUNT, 1))
    if count == 1:
        return [file]
    names = part_names(file.path.name)
    if len(names) != count:
        raise FormatError(
            f"{file.path}: metadata '{COUNT}' is {count}, so a name that ends in"
            f" '-00001-of-{count:05}.gguf' was expected: the other parts are found by it"
        )
    parts = [_open_part(file, name, number) for number, name in enumerate(names)]
    _check_total(parts)
    return parts


def _open_part(given: GgufFile, name: str, number: int) -> GgufFile:
    path = given.path.with_name(name)
    try:
        part = given if path == given.path else open_file(path)
    except ModelNotFoundError:
        raise ModelNotFoundError(
            f"{path}: no such file, but {given.path.name} is one part of a split model;"
            " all of them are needed, side by side"
        ) from None
    for key in (COUNT, TENSORS):
        found, wanted = part.count(key, 0), given.count(key, 0)
        if found != wanted:
            raise FormatError(
                f"{path}: metadata '{key}' is {found}, but {wanted} in {given.path.name};"
                " expected parts of one model"
            )
    if part.count(NUMBER, 0) != number:
        raise FormatError(
            f"{path}: metadata '{NUMBER}' is {part.metadata.get(NUMBER)}, expected {number}"
            " (parts are counted from 0 there); was the file renamed?"
        )
    return part


def _check_total(parts: list[GgufFile]) -> None:
    if TENSORS not in parts[0].metadata:
        return
    found, wanted = sum(len(part.header.tensors()) for part in parts), parts[0].count(TENSORS, 0)
    if found != wanted:
        raise FormatError(
            f"{parts[0].path}: metadata '{TENSORS}' is {wanted}, but the {len(parts)} parts have"
            f" {found} tensors"
        )
