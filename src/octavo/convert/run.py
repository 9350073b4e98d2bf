"""`convert`: which way to go, and the writing, tensor by tensor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.convert.config_json import config_json
from octavo.convert.conventions import MODEL_TYPE_KEY, Conventions, conventions_of
from octavo.convert.gguf_keys import gguf_keys, rope_tensors
from octavo.convert.groups import grouped, ungrouped, with_first_rows
from octavo.convert.proof import prove_same
from octavo.convert.sentence_files import extra_texts, folder_extras, pooling_keys
from octavo.convert.tensors import FLOATS, Bytes, Turner, as_scheme, exact_key
from octavo.convert.tokenizer_to_gguf import tokenizer_keys
from octavo.convert.tokenizer_to_json import tokenizer_files
from octavo.errors import FormatError, InvalidParameterError
from octavo.models import ModelConfig, build_graph, config_from, fit_tensors
from octavo.records import replace
from octavo.weights import SCHEMES, Checkpoint, Tensor, dequantize, open_checkpoint
from octavo.weights.gguf_writer import TensorEntry, write_gguf
from octavo.weights.names import stored_name
from octavo.weights.quantized.choose import as_filed
from octavo.weights.safetensors_writer import Produce, StoredTensor, write_folder
from octavo.weights.whole import check_target, whole_file, whole_folder

DTYPES = ("auto", "f32", "f16", "bf16", "q8_0")
Progress = Callable[[int, int, str], None]
"""Called with (bytes done, bytes in all, tensor)."""
_TORCH = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def convert(
    source: Path,
    target: Path,
    *,
    dtype: str = "auto",
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write the model at `source` in the other format: a folder as the GGUF file `target`, a GGUF
    file as the folder `target`. Returns target.

    dtype: of matrices; "auto" keeps floats as they are, and widens quantized ones to float32 on the
    way to a folder. Vectors stay float32 in GGUF. force: replace what is there. Raises ModelError
    (WriteError, UnsupportedError, FormatError) or InvalidParameterError; nothing is left behind.
    """
    if dtype not in DTYPES:
        raise InvalidParameterError("dtype", f"got {dtype!r}, expected one of {', '.join(DTYPES)}")
    check_target(target, force)
    checkpoint = open_checkpoint(source)
    config = config_from(checkpoint)
    build_graph(config, fit_tensors(config, checkpoint).tensors)  # every tensor of its shape
    job = Conversion(checkpoint, config, dtype, progress)
    if checkpoint.format == "gguf":
        job.to_folder(target)
    else:
        job.to_gguf(target)
    return target


def gguf_header(
    checkpoint: Checkpoint,
) -> tuple[Turner, dict[str, Any], list[TensorEntry], dict[str, Tensor]]:
    """What a folder's GGUF file says in its header, and how its tensors come about."""
    job = Conversion(checkpoint, config_from(checkpoint), "auto", None)
    return job.turner, *job.header(checkpoint.path)


class Conversion:
    """One conversion."""

    def __init__(
        self, checkpoint: Checkpoint, config: ModelConfig, dtype: str, progress: Progress | None
    ) -> None:
        self.source, self.config, self.progress = checkpoint, config, progress
        self.scheme = None if dtype == "auto" else dtype.upper()
        self.conventions: Conventions = conventions_of(config, checkpoint)
        self.turner = Turner(config, self.conventions)
        regroup = ungrouped if checkpoint.format == "gguf" else grouped
        self.checkpoint = regroup(checkpoint, config)
        if checkpoint.format == "gguf":
            self._restore_first_rows()

    def _restore_first_rows(self) -> None:
        """RoBERTa's positions of padding, which its GGUF file keeps beside the table."""
        kept = self.checkpoint.metadata.get(exact_key("position_embd.weight"))
        hidden, encoder = self.config.hidden_size, self.config.encoder
        if encoder is None or "position_embd.weight" not in self.checkpoint.tensors:
            return
        if not isinstance(kept, np.ndarray) or kept.dtype != np.float32 or kept.size % hidden:
            return
        first = np.asarray(kept, np.float32).reshape(-1, hidden)
        encoder = replace(encoder, position_offset=len(first))
        self.config = replace(self.config, encoder=encoder)
        self.checkpoint = with_first_rows(self.checkpoint, first)

    def to_gguf(self, target: Path) -> None:
        """Header first; tensors are made when their turn comes."""
        metadata, entries, made = self.header(target)
        with whole_file(target) as file:
            data = self._gguf_data(self._gguf_tensors(), made, entries)
            write_gguf(file, metadata, entries, data)

    def header(self, target: Path) -> tuple[dict[str, Any], list[TensorEntry], dict[str, Tensor]]:
        """The GGUF file's metadata and tensors, proved to say the same model, and those of its
        tensors that are made of the configuration."""
        tensors, made = self._gguf_tensors(), rope_tensors(self.config)
        entries = [self._entry(tensor) for tensor in tensors.values()]
        entries += [TensorEntry(t.name, t.shape, t.scheme) for t in made.values()]
        metadata = self._metadata(entries)
        prove_same(self.source, _header_twin(target, metadata, entries, made))
        return metadata, entries, made

    def to_folder(self, target: Path) -> None:
        """Config and tokenizer first, then the weights."""
        if self.scheme == "Q8_0":
            raise InvalidParameterError("dtype", "a folder holds f32, f16 or bf16, not q8_0")
        texts, stored = self.folder_header(target)
        with whole_folder(target) as folder:
            for name, text in texts.items():
                folder.write_text(name, text)
            total = sum(t.size_bytes for t, _ in stored.values())
            write_folder(folder, [t for t, _ in stored.values()], self._producer(stored, total))

    def folder_header(
        self, target: Path, more: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, tuple[StoredTensor, Tensor]]]:
        """The folder's small files, proved to say the same model, and by stored name its tensors
        with what they are made of. more: what config.json has besides."""
        stored = {t.name: (t, tensor) for t, tensor in self._stored()}
        floats = Counter(t.dtype for t, _ in stored.values() if len(t.shape) > 1)
        config = config_json(
            self.config,
            self.conventions,
            {tensor.name for _, tensor in stored.values()},
            {n: dequantize(t) for n, t in self.checkpoint.tensors.items() if _is_rope(n)},
            _TORCH[floats.most_common(1)[0][0] if floats else "F32"],
            self._pad_token_id(),
        )
        tensors = {tensor.name: tensor for _, tensor in stored.values()}
        extras = folder_extras(self.source, self.config)
        after = Checkpoint(target, "safetensors", config, tensors, 0, extras=dict(extras))
        prove_same(self.source, after)
        texts = tokenizer_files(self.checkpoint.metadata) | extra_texts(extras)
        whole = {**config, **(more or {})}
        texts["config.json"] = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        return texts, stored

    def _pad_token_id(self) -> int | None:
        """As the tokenizer has it."""
        id_ = self.checkpoint.metadata.get("tokenizer.ggml.padding_token_id")
        return id_ if isinstance(id_, int) and 0 <= id_ < self.config.vocab_size else None

    def _gguf_tensors(self) -> dict[str, Tensor]:
        """By GGUF name, in the order of layers; a head that llama.cpp wants is the embedding."""
        tensors = {name: as_filed(t) for name, t in self.checkpoint.tensors.items()}
        if self.conventions.head_required and "output.weight" not in tensors:
            tied = tensors["token_embd.weight"]
            tensors["output.weight"] = Tensor("output.weight", tied.shape, tied.scheme, tied.data)
        for tensor in tensors.values():
            tensor.require_native()
        return {name: tensors[name] for name in sorted(tensors, key=_place)}

    def _entry(self, tensor: Tensor) -> TensorEntry:
        shape = tensor.shape[::-1] if self.turner.turns(tensor.name) else tensor.shape
        return TensorEntry(tensor.name, shape, SCHEMES[self._gguf_scheme(tensor, shape)])

    def _gguf_scheme(self, tensor: Tensor, shape: Sequence[int]) -> str:
        """Vectors, learned positions and routers are float32, as llama.cpp wants them."""
        if (
            len(shape) < 2
            or tensor.name == "position_embd.weight"
            or ".ffn_gate_inp" in tensor.name
        ):
            return "F32"
        own = tensor.scheme.name if tensor.scheme.name in SCHEMES else "F16"
        wanted = self.scheme or own
        return "F16" if shape[-1] % SCHEMES[wanted].block_elems else wanted

    def _metadata(self, entries: Sequence[TensorEntry]) -> dict[str, Any]:
        bytes_by_scheme = Counter[str]()
        for entry in entries:
            bytes_by_scheme[entry.scheme.name] += entry.size_bytes
        most = bytes_by_scheme.most_common(1)[0][0]
        generation = self.checkpoint.extras.get("generation_config", {})
        tokenizer = tokenizer_keys(self.checkpoint.path, generation, self.config.vocab_size)
        return {
            **gguf_keys(self.config, self.conventions.architecture, most),
            **(tokenizer or self._bare_ids()),
            **self.turner.exact_norms(self.checkpoint),
            **self._encoder_keys(),
            **pooling_keys(self.source, self.config, self.conventions.architecture),
        }

    def _encoder_keys(self) -> dict[str, Any]:
        """What GGUF files of encoders say outside their architecture's keys."""
        encoder = self.config.encoder
        if encoder is None:
            return {}
        shared = self.conventions.model_type(self.config) if self.conventions.shared else None
        table = self.source.tensors.get("position_embd.weight")
        offset, keys = encoder.position_offset, dict[str, Any]()
        if offset and table is not None:
            keys[exact_key(table.name)] = dequantize(table)[:offset].reshape(-1)
        types = max(encoder.num_types, 1)  # llama.cpp wants at least one
        return {MODEL_TYPE_KEY: shared, "tokenizer.ggml.token_type_count": types, **keys}

    def _bare_ids(self) -> dict[str, Any]:
        """Without a tokenizer: what config.json says of begin and end."""
        ids = {"bos_token_id": self.config.bos_token_id}
        ids |= dict(zip(("eos_token_id", "eot_token_id"), self.config.eos_token_ids, strict=False))
        given = {f"tokenizer.ggml.{key}": id_ for key, id_ in ids.items() if id_ is not None}
        return {"tokenizer.ggml.model": "none", **given}

    def _gguf_data(
        self,
        tensors: Mapping[str, Tensor],
        made: Mapping[str, Tensor],
        entries: Sequence[TensorEntry],
    ) -> Iterator[Bytes]:
        total, done = sum(entry.size_bytes for entry in entries), 0
        for entry in entries:
            if entry.name in made:
                yield made[entry.name].data
            else:
                source = tensors[entry.name]
                yield as_scheme(self.turner.to_gguf(source), entry.scheme.name).data
                self.checkpoint.release(source)
            done += entry.size_bytes
            self._report(done, total, entry.name)

    def _stored(self) -> Iterator[tuple[StoredTensor, Tensor]]:
        """What the folder holds of each tensor. A head that is the embedding again is left out."""
        model_type = self.conventions.model_type(self.config)
        tensors, encoder = self.checkpoint.tensors, self.config.encoder
        bare = encoder is not None and not encoder.num_labels
        for name, tensor in tensors.items():
            if _is_rope(name) or (name == "output.weight" and _is_tied(tensors)):
                continue
            stored = stored_name(name, model_type, tensors, bare=bare)
            if stored is None:
                raise FormatError(
                    f"{self.checkpoint.path}: tensor '{name}' has no name in a Hugging Face folder"
                    f" of model_type {model_type}"
                )
            shape = tensor.shape[::-1] if self.turner.turns(name) else tensor.shape
            yield StoredTensor(stored, self._folder_dtype(tensor), shape), tensor

    def _folder_dtype(self, tensor: Tensor) -> str:
        if self.scheme is not None:
            return self.scheme
        if len(tensor.shape) > 1 and tensor.name != "position_embd.weight":
            return tensor.scheme.name if tensor.scheme.name in FLOATS else "F32"
        return self._vector_dtype(tensor)

    def _vector_dtype(self, tensor: Tensor) -> str:
        """The type of the matrices where nothing is lost: GGUF's vectors are float32 anyway."""
        values = self.turner.to_folder(tensor, self.checkpoint.metadata)
        usual = self._usual_float()
        kept = dequantize(as_scheme(values, usual))
        return usual if np.array_equal(kept, dequantize(values)) else "F32"

    def _usual_float(self) -> str:
        embedding = self.checkpoint.tensors.get("token_embd.weight")
        name = embedding.scheme.name if embedding is not None else "F32"
        return name if name in FLOATS else "F32"

    def _producer(self, stored: Mapping[str, tuple[StoredTensor, Tensor]], total: int) -> Produce:
        done = 0

        def produce(wanted: StoredTensor) -> Bytes:
            nonlocal done
            _, tensor = stored[wanted.name]
            turned = self.turner.to_folder(tensor, self.checkpoint.metadata)
            data = as_scheme(turned, wanted.dtype).data
            self.checkpoint.release(tensor)
            done += wanted.size_bytes
            self._report(done, total, wanted.name)
            return data

        return produce

    def _report(self, done: int, total: int, name: str) -> None:
        if self.progress is not None:
            self.progress(done, total, name)


def _is_rope(name: str) -> bool:
    return name.startswith(("rope_freqs.", "rope_factors_"))


def _is_tied(tensors: Mapping[str, Tensor]) -> bool:
    head, embedding = tensors["output.weight"], tensors["token_embd.weight"]
    same = head.scheme is embedding.scheme and head.shape == embedding.shape
    return same and np.array_equal(head.data, embedding.data)


def _place(name: str) -> tuple[int, int, str]:
    """The embedding, the layers by number, then the rest."""
    parts = name.split(".")
    if parts[0] == "blk":
        return 1, int(parts[1]), name
    return (0 if parts[0].endswith("embd") else 2), 0, name


def _header_twin(
    path: Path,
    metadata: Mapping[str, Any],
    entries: Sequence[TensorEntry],
    made: Mapping[str, Tensor],
) -> Checkpoint:
    """What a reader will see of the file, without its data, except those of `made`."""
    empty = np.zeros(0, np.uint8)
    tensors = {
        e.name: made.get(e.name) or Tensor(e.name, e.shape, e.scheme, empty) for e in entries
    }
    return Checkpoint(path, "gguf", metadata, tensors, 0)
