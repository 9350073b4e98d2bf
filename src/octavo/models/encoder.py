"""What encoder families share: embeddings of types, norms behind blocks, heads that give labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.errors import FormatError, UnsupportedError
from octavo.graph import Graph, Value
from octavo.models.config import EncoderConfig, ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

HEAD = ("cls.", "pooler.")
"""How names of a classification head begin; "pooler." is one that nothing here reads."""
_TASKS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")
_LABELS = "cls.output.weight"


class Encoder(Decoder):
    """Builds one encoder graph. Attention sees both ways because the config has an encoder part."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.encoder = config.encoder or EncoderConfig()

    def embed_input(self, *, positions: bool) -> Value:
        """Tokens, types and positions added up, and normalised."""
        x, types = self.embed(), self.encoder.num_types
        hidden = self.config.hidden_size
        if types:
            table = self.weight("token_types.weight", types, hidden)
            x = self.graph.add(x, self.graph.embed_types(table))
        if positions:
            x = self.graph.add(x, self.embed_positions(self.encoder.position_offset))
        return self._norm(x, "token_embd_norm.weight", hidden, "token_embd_norm")

    def final_norm(self, x: Value) -> Value:
        """The norm behind the last layer, of families that have one."""
        return self._norm(x, "output_norm.weight", self.config.hidden_size, "output_norm")

    def finish(self, x: Value) -> Graph:
        """Hidden states of the wanted rows, or the labels of the sequences they belong to."""
        if self.encoder.num_labels == 0:
            output = self.graph.select_rows(x)
        elif self.encoder.head_pooling == "mean":
            output = self._head(self.graph.mean_rows(x))
        else:
            output = self._head(self.graph.select_rows(x))
        self._weights.settle(self.config.name)
        return self.graph.build(output)

    def _head(self, x: Value) -> Value:
        """Dense layer, activation and norm, where the file has them, then the labels."""
        hidden = self.config.hidden_size
        if self._weights.has("cls.weight"):
            x = self._dense(x, "cls", hidden)
            g = self.graph
            active = {"relu": g.relu, "gelu_erf": g.gelu_erf, "gelu": g.gelu, "silu": g.silu}
            x = active.get(self.encoder.head_activation, g.tanh)(x)
        if self._weights.has("cls.norm.weight"):
            x = self._norm(x, "cls.norm.weight", hidden, "cls.norm")
        return self._dense(x, "cls.output", self.encoder.num_labels)

    def _dense(self, x: Value, name: str, size: int) -> Value:
        weight = self.weight(f"{name}.weight", size, int(x.shape[1]))
        biased = self._weights.has(f"{name}.bias")
        bias = self.weight(f"{name}.bias", size) if biased else None
        return self.graph.linear(x, weight, bias, name=name)


def encoder_config(source: Source, **settings: Any) -> EncoderConfig:
    """What the file's tensors and keys say of every family. Raises UnsupportedError for a model
    with a head that is neither for whole texts nor left out."""
    if not source.is_gguf:
        _check_task(source)
    labels = source.checkpoint.tensors.get(_LABELS)
    if labels is not None and len(labels.shape) != 2:
        got = list(labels.shape)
        place = labels.home or source.checkpoint.path
        raise FormatError(f"{place}: '{_LABELS}': got {got}, expected [labels, n]")
    num_labels = 0 if labels is None else labels.shape[0]
    if source.is_gguf and source.has("classifier.activation"):
        settings["head_activation"] = _head_activation(source)
    return EncoderConfig(num_labels=num_labels, sigmoid=_sigmoid(source), **settings)


def _check_task(source: Source) -> None:
    named = source.get("architectures")
    name = named[0] if isinstance(named, list) and named else "Model"
    if not isinstance(name, str) or not name.endswith(_TASKS):
        known = ", ".join(f"*{task}" for task in _TASKS)
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'architectures': got {name!r:.80}, expected one of {known}"
        )


_HEAD_ACTIVATIONS = ("tanh", "relu", "gelu", "gelu_erf", "silu")


def _head_activation(source: Source) -> str:
    """By a key that `octavo convert` writes where it is not the architecture's usual one."""
    name = source.text("classifier.activation")
    if name not in _HEAD_ACTIVATIONS:
        raise source.error("classifier.activation", name, ", ".join(_HEAD_ACTIVATIONS))
    return name


def _sigmoid(source: Source) -> bool:
    """sentence-transformers' settings in config.json, old or new; else as it does by default."""
    if source.is_gguf:
        return not source.has("classifier.sigmoid") or source.flag("classifier.sigmoid")
    old = "sbert_ce_default_activation_function"
    named = source.table("sentence_transformers").get("activation_fn", source.get(old))
    if named is None:
        return True
    kind = str(named).rpartition(".")[2]
    if kind not in ("Sigmoid", "Identity"):
        raise source.error(old, named, "torch's Sigmoid or Identity")
    return kind == "Sigmoid"


def without_unused(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors without heads that this model does not use."""
    drop: Iterable[str] = HEAD if config.encoder and not config.encoder.num_labels else ("pooler.",)
    return {name: t for name, t in tensors.items() if not name.startswith(tuple(drop))}


def as_encoder(config: ModelConfig, encoder: EncoderConfig, **changes: Any) -> ModelConfig:
    """The config with an encoder part and layer norms."""
    return replace(config, encoder=encoder, norm_kind="layer", **changes)
