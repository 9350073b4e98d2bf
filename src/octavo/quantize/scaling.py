"""AWQ (Lin et al. 2023): columns with large inputs are scaled up before rounding, and what makes
the inputs is scaled down by as much. The model stays the same; its important numbers are rounded
finer.

What makes an input of a product decides whether that can be done: a norm (its weight takes the
factor), the `up` of a gated MLP (its rows), or attention (the rows of v, one factor for all heads
that share a KV head).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.backends.base import Floats
from octavo.graph import AttentionAttrs, Graph, KvWriteAttrs, Node, Op, Value
from octavo.quantize.effects import Effects
from octavo.quantize.forward import Forward
from octavo.quantize.inputs import apart, fill_unseen, mean_square, tempered
from octavo.quantize.mixing import ladder, measure
from octavo.quantize.rounding import expanded, rounded
from octavo.quantize.source import SourceModel
from octavo.weights import Scheme

EXPONENTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
"""Tried; 0 is no scaling. Where some columns are always large, as in Qwen2, a little is best."""
TRUST = (0.0, 0.5, 1.0)
"""Powers of a column's mean square input, tried as what an error in it costs; 0 is as if nothing
was known. A long row's means come from few tokens and say less than they seem to."""
ROWS, TOKENS = 64, 512
"""Rows of a weight and tokens that errors are measured on."""


@dataclass(frozen=True)
class Fold:
    """Where a factor on a product's input goes. weight, bias: whose rows (or elements) are divided.
    spread: for attention, (query heads a KV head, head size)."""

    weight: str
    bias: str | None = None
    spread: tuple[int, int] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What is there of weight and bias."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass
class Observed:
    """What the run showed. importance: mean square of each column's input, by weight, [K] or of
    experts [E, K], as far as it is of use. errors: of a weight's outputs, by format."""

    importance: dict[str, Floats] = field(default_factory=dict)
    errors: dict[str, list[tuple[Scheme, float]]] = field(default_factory=dict)


def observe(
    source: SourceModel,
    forward: Forward,
    scheme_of: Callable[[str], Scheme | None],
    threads: int,
    *,
    scale: bool,
    errors: bool = False,
    progress: Callable[[str, int], None],
) -> Observed:
    """Run the model as it is. Note each product's inputs and, with scale, put the factors found
    into `source`; with errors, measure what each format would cost each weight. scheme_of: the
    format a weight will get, None if it stays float. progress: called with a weight and how many of
    its numbers were looked at."""
    graph, observed = forward.graph, Observed()
    groups, folds = groups_of(graph), folds_of(graph) if scale else {}
    columns: dict[str, Floats] = {}
    rows: dict[str, Floats] = {}
    costs: dict[str, Floats | None] = {}

    def supply(node: Node, weight: Value, x: Floats) -> Floats | None:
        progress(weight.name, source.fitted.tensors[weight.name].size)
        x = tempered(x)
        observed.importance[weight.name] = mean_square(x)
        source_value = node.inputs[0]
        assert source_value is not None
        group = groups[source_value]
        if scale and weight.name == group[-1]:
            fold = folds.get(source_value)
            if fold and not _is_stored(source, (*group, *fold.names)):
                fold = None
            pairs = [(_rows_of(source, name), scheme_of(name)) for name in group]
            factor, trusts = Trial.of(x, forward.window, threads).best(pairs, fold)
            wide = _spread(factor, fold.spread if fold else None)
            for name, trust in zip(group, trusts, strict=True):
                costs[name] = cost_of(observed.importance[name], wide, trust)
            if fold:
                columns.update(dict.fromkeys(group, wide))
                rows.update(dict.fromkeys(fold.names, np.float32(1) / factor))
        if errors and scheme_of(weight.name) is not None:
            observed.errors[weight.name] = _errors(
                _rows_of(source, weight.name), x, observed.importance[weight.name], threads
            )
        if node.output is graph.output or weight.name in ("output.weight", "token_embd.weight"):
            return None
        return source.expand(weight.name)

    def note(names: Sequence[str], expert: int, x: Floats) -> Sequence[Floats]:
        for name in names:
            shape = source.fitted.tensors[name].shape
            progress(name, shape[1] * shape[2])
            seen = observed.importance.setdefault(name, np.zeros((shape[0], shape[2]), np.float32))
            if len(x):
                seen[expert] = mean_square(tempered(x))
        return [source.lookup(name, np.array([expert]))[0] for name in names]

    effects = Effects(graph)
    forward.run(supply, effects.watch if errors else None, note)
    for name, found in observed.errors.items():
        effect = effects.of.get(name, 1.0)
        observed.errors[name] = [(scheme, effect * error) for scheme, error in found]
    for seen in observed.importance.values():
        if seen.ndim == 2:
            fill_unseen(seen)
    source.columns.update(columns)
    source.rows.update(rows)
    observed.importance.update({name: cost for name, cost in costs.items() if cost is not None})
    for name in (name for name, cost in costs.items() if cost is None):
        del observed.importance[name]
    return observed


def work_of(graph: Graph, source: SourceModel) -> int:
    """The numbers that `observe` reports in all."""
    weights = {Op.LINEAR: slice(1, 2), Op.EXPERTS: slice(2, 5)}
    return sum(
        source.fitted.tensors[value.name].size
        for node in graph.nodes
        for value in node.inputs[weights.get(node.op, slice(0))]
        if value is not None
    )


def groups_of(graph: Graph) -> dict[Value, list[str]]:
    """The weights that multiply each value, in order."""
    groups: dict[Value, list[str]] = {}
    for node in graph.nodes:
        if node.op is Op.LINEAR and node.inputs[0] and node.inputs[1]:
            groups.setdefault(node.inputs[0], []).append(node.inputs[1].name)
    return groups


def _is_stored(source: SourceModel, names: Sequence[str]) -> bool:
    """Whether all are rows of the file, so that factors reach it."""
    return all(name in source.parts for name in names)


def folds_of(graph: Graph) -> dict[Value, Fold]:
    """Values that only products read and whose maker can take a factor."""
    makers = {node.output: node for node in graph.nodes if node.output}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, []).append(node)
    folds = {}
    for value, nodes in readers.items():
        maker = makers.get(value)
        if maker is None or any(node.op is not Op.LINEAR for node in nodes):
            continue
        fold = _fold(maker, makers, readers, graph)
        if fold is not None and fold.weight not in ("output_norm.weight",):
            folds[value] = fold
    return folds


def _fold(
    maker: Node, makers: dict[Value, Node], readers: dict[Value, list[Node]], graph: Graph
) -> Fold | None:
    attrs: Any = maker.attrs
    if maker.op in (Op.RMS_NORM, Op.LAYER_NORM) and not getattr(attrs, "unit_offset", 0):
        weight, bias = (*maker.inputs[1:], None)[:2]
        whole = weight and maker.output and weight.shape == maker.output.shape[1:]
        return Fold(weight.name, bias.name if bias else None) if weight and whole else None
    if maker.op is Op.MUL:
        return _linear_fold(maker.inputs[1], makers, readers, None)
    if maker.op is Op.ATTENTION and isinstance(attrs, AttentionAttrs):
        for node in graph.nodes:
            if isinstance(node.attrs, KvWriteAttrs) and node.attrs.layer == attrs.layer:
                spread = attrs.num_heads // attrs.num_kv_heads, attrs.head_dim
                return _linear_fold(node.inputs[1], makers, readers, spread)
    return None


def _linear_fold(
    value: Value | None,
    makers: dict[Value, Node],
    readers: dict[Value, list[Node]],
    spread: tuple[int, int] | None,
) -> Fold | None:
    """The product that makes a value that nobody else reads."""
    maker = makers.get(value) if value else None
    if maker is None or value is None or maker.op is not Op.LINEAR or len(readers[value]) != 1:
        return None
    weight, bias = (*maker.inputs[1:], None)[:2]
    return Fold(weight.name, bias.name if bias else None, spread) if weight else None


@dataclass(frozen=True)
class Trial:
    """Inputs of a product that choices are made by. Sizes come from some windows, costs from the
    others, so that nothing is taken that only suits what it was made from. seen, left: [tokens, K]
    of either. power: mean squares of `seen`."""

    seen: Floats
    left: Floats
    power: Floats
    threads: int

    @classmethod
    def of(cls, x: Floats, window: int, threads: int) -> Trial:
        seen, left = apart(x, window)
        return cls(seen, _some_tokens(left), mean_square(seen), threads)

    def best(
        self, pairs: Sequence[tuple[Floats, Scheme | None]], fold: Fold | None
    ) -> tuple[Floats, list[float]]:
        """What costs least: the power of the inputs' mean size, one factor for each input that
        `fold` can take (ones if there is none), and each weight's one of TRUST.

        pairs: rows of the weights that read the inputs and their formats. A weight's error counts
        relative to its outputs: keys and values are small beside queries and matter as much.
        """
        factors = [np.ones(len(self.power), np.float32)]
        if fold is not None:
            size = _mean_size(self.seen, fold.spread)
            factors = [_factor(size, exponent) for exponent in EXPONENTS]
        tried = []
        for factor in factors:
            wide = _spread(factor, fold.spread if fold else None)
            found = [self._least(weight, scheme, wide) for weight, scheme in pairs]
            tried.append((sum(error for error, _ in found), [trust for _, trust in found]))
        place = min(range(len(tried)), key=lambda i: tried[i][0])
        return factors[place], tried[place][1]

    def _least(self, rows: Floats, scheme: Scheme | None, factor: Floats) -> tuple[float, float]:
        """The error with the best of TRUST, and which that is."""
        if scheme is None:
            return 0.0, 1.0
        return min((self._error(rows, scheme, factor, trust), trust) for trust in TRUST)

    def _error(self, weight: Floats, scheme: Scheme, factor: Floats, trust: float) -> float:
        """Squared error of the products with some inputs, over their own squares."""
        scaled = weight * factor
        blocks = rounded(scaled, scheme, cost_of(self.power, factor, trust), self.threads)
        off = (expanded(blocks, weight.shape, scheme) - scaled) / factor
        whole = float(np.square(self.left @ weight.T).sum(dtype=np.float64)) or 1.0
        return float(np.square(self.left @ off.T).sum(dtype=np.float64)) / whole


def cost_of(power: Floats, factor: Floats, trust: float) -> Floats | None:
    """What a squared error in each column of a scaled weight costs, as `rounded` takes it."""
    if trust == 0:
        return None
    result: Floats = ((power / (factor * factor)) ** trust).astype(np.float32)
    return result


def _mean_size(x: Floats, spread: tuple[int, int] | None) -> Floats:
    """Mean magnitude of each input; of attention, over the heads that share a KV head."""
    size = np.abs(x).mean(axis=0)
    if spread is not None:
        size = size.reshape(-1, *spread).mean(axis=1).reshape(-1)
    result: Floats = np.maximum(size, np.float32(1e-6))
    return result


def _factor(size: Floats, exponent: float) -> Floats:
    """size ** exponent about 1: its extremes' geometric mean is 1."""
    factor = size**exponent
    result: Floats = (factor / np.sqrt(factor.max() * factor.min())).astype(np.float32)
    return np.clip(result, np.float32(1e-3), np.float32(1e3))


def _spread(factor: Floats, spread: tuple[int, int] | None) -> Floats:
    """One factor for each input: those of a KV head repeated for its query heads."""
    if spread is None:
        return factor
    heads, size = spread
    return np.repeat(factor.reshape(-1, 1, size), heads, axis=1).reshape(-1)


def _errors(rows: Floats, x: Floats, power: Floats, threads: int) -> list[tuple[Scheme, float]]:
    schemes = ladder(rows.shape[1])
    found = measure(rows, _some_tokens(x), power, schemes, threads)
    return list(zip(schemes, found, strict=True))


def _some_tokens(x: Floats) -> Floats:
    return np.ascontiguousarray(x[:: max(1, len(x) // TOKENS)][:TOKENS])


def _rows_of(source: SourceModel, name: str) -> Floats:
    count = source.fitted.tensors[name].shape[0]
    return source.lookup(name, np.arange(0, count, max(1, count // ROWS)))
