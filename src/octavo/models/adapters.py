"""LoRA adapters on a model's graph: from modules of the training code to weights of products."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from octavo.errors import FormatError, ModelError
from octavo.graph import Graph, Op, Value
from octavo.models.config import ModelConfig
from octavo.models.registry import family_of, fit_tensors
from octavo.records import replace
from octavo.weights import dequantize
from octavo.weights.adapter import Adapter, LowRank
from octavo.weights.names import canonical_name
from octavo.weights.peft import StoredAdapter, StoredChange, open_adapter
from octavo.weights.tensor import Checkpoint, Tensor, float32_tensor


def read_adapter(path: Path, config: ModelConfig, checkpoint: Checkpoint, graph: Graph) -> Adapter:
    """Open an adapter for the model that `graph` was built from.

    checkpoint: the model's, as it was opened or fitted. Raises ModelError naming file and tensor
    where the adapter is for another base, UnsupportedError where it changes more than products.
    """
    stored = open_adapter(path)
    products = _products(graph)
    by_name: dict[str, StoredChange] = {}
    for change in stored.changes:
        name = canonical_name(f"{change.module}.weight", *_naming(config))
        if name is None:
            raise FormatError(_unknown(stored, change, config))
        by_name[name] = change
    changes: dict[str, LowRank] = {}
    weights = checkpoint.tensors
    for name, change in by_name.items():
        try:
            ups = _fitted(change.up, name, config, checkpoint)
            column = _column(change.magnitude)
            lengths = _fitted(column, name, config, checkpoint) if column is not None else {}
        except ModelError as error:  # one expert of many, for example
            raise FormatError(_unknown(stored, change, config)) from error
        for target, up in ups.items():
            product = products.get(target)
            if product is None:
                raise FormatError(_unknown(stored, change, config))
            _check_shapes(stored, change, product, up)
            found = LowRank(change.down, up, change.scale)
            if target in lengths:
                if target not in weights:  # the checkpoint is as it was opened
                    weights = fit_tensors(config, checkpoint).tensors
                found = replace(found, gain=_gain(weights[target], found, lengths[target]))
            changes[target] = found
    return Adapter(path, changes)


def _fitted(
    rows: Tensor, name: str, config: ModelConfig, checkpoint: Checkpoint
) -> Mapping[str, Tensor]:
    """Rows of a weight by the names of the graph's: those of W that the graph splits, turns or
    reorders are rows of B, of lengths and of a whole new weight."""
    stored = _as_stored(rows, name, config, checkpoint)
    fitted = fit_tensors(config, replace(checkpoint, tensors={name: stored})).tensors
    return {target: _permuted(t, target, config, checkpoint) for target, t in fitted.items()}


def _column(magnitude: Tensor | None) -> Tensor | None:
    if magnitude is None:
        return None
    return Tensor(magnitude.name, (*magnitude.shape, 1), magnitude.scheme, magnitude.data)


def _gain(weight: Tensor, change: LowRank, lengths: Tensor) -> Tensor:
    """What the rows of W + scale B A are multiplied by to have these lengths."""
    assert change.down is not None
    low_rank = dequantize(change.up) @ dequantize(change.down)
    whole = dequantize(weight) + np.float32(change.scale) * low_rank
    norms = np.linalg.norm(whole, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(norms > 0, dequantize(lengths)[:, 0] / norms, 0)
    return float32_tensor(lengths.name, gain.astype(np.float32))


def _products(graph: Graph) -> dict[str, Value]:
    """Weights of plain products by name."""
    found = (node.inputs[1] for node in graph.nodes if node.op is Op.LINEAR)
    return {value.name: value for value in found if value is not None and value.kind == "weight"}


def _naming(config: ModelConfig) -> tuple[str, int]:
    """The names of a GGUF file's family are those of its Hugging Face folders."""
    return family_of(config).json_names[0], config.num_layers


def _as_stored(up: Tensor, name: str, config: ModelConfig, checkpoint: Checkpoint) -> Tensor:
    """`up` as the family's own files would hold a weight of its rows."""
    if config.architecture == "gpt2" and checkpoint.format != "gguf" and name.startswith("blk."):
        return float32_tensor(name, np.ascontiguousarray(dequantize(up).T))  # fit turns it back
    return Tensor(name, up.shape, up.scheme, up.data)


def _permuted(up: Tensor, name: str, config: ModelConfig, checkpoint: Checkpoint) -> Tensor:
    """Rows of q and k in the order of GGUF's llama files, where pairs to rotate are neighbours."""
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
    part = name.split(".")[-2]
    in_order = checkpoint.format != "gguf" or not config.rope.interleaved
    if in_order or part not in heads or up.shape[0] != heads[part] * config.head_dim:
        return up
    order = np.arange(up.shape[0]).reshape(heads[part], 2, -1).swapaxes(1, 2).reshape(-1)
    return up.reordered(order)


def _check_shapes(stored: StoredAdapter, change: StoredChange, product: Value, up: Tensor) -> None:
    rows, columns = product.shape
    rank = columns if change.down is None else change.down.shape[0]
    wanted = [(up, (rows, rank))]
    if change.down is not None:
        wanted.insert(0, (change.down, (rank, columns)))
    for tensor, shape in wanted:
        if tensor.shape != shape:
            named = tensor if tensor is change.down else change.up
            raise FormatError(
                f"{stored.where}: tensor '{named.name}' is {list(tensor.shape)}, but"
                f" '{product.name}' of the model is {list(product.shape)}, which takes"
                f" {list(shape)}; the adapter is for another base"
            )


def _unknown(stored: StoredAdapter, change: StoredChange, config: ModelConfig) -> str:
    return (
        f"{stored.where}: tensor '{change.shown.name}' changes module '{change.module}', which is"
        f" no plain product of {config.name}; the adapter is for another base, or changes"
        " embeddings or experts, which is not supported"
    )
