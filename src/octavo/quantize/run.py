"""`quantize`: a model written with fewer bits, by rounding, AWQ or GPTQ."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from octavo.backends.base import Floats
from octavo.errors import InvalidParameterError
from octavo.graph import Node, Value
from octavo.machine import num_threads
from octavo.quantize.calibration import calibration_text, calibration_windows
from octavo.quantize.folder import write_compressed
from octavo.quantize.forward import Forward
from octavo.quantize.gptq import SAMPLE, gptq, moments_factor
from octavo.quantize.inputs import HELD_OUT, mean_square, tempered
from octavo.quantize.mixing import Choice, choose
from octavo.quantize.recipe import EMBEDDING, HEAD, Recipe, is_quantized, recipe_named, scheme_of
from octavo.quantize.rounding import WIDE, Bytes, expanded, rounded
from octavo.quantize.scaling import groups_of, observe, work_of
from octavo.quantize.sink import Sink
from octavo.quantize.source import Part, SourceModel
from octavo.records import replace
from octavo.weights import Scheme, inspect_model, open_checkpoint
from octavo.weights.gguf_writer import TensorEntry
from octavo.weights.whole import check_target

METHODS = ("rtn", "awq", "gptq", "awq+gptq")
Progress = Callable[[int, int, str], None]
"""Called with (numbers done, numbers in all, what is at work)."""
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K": 14, "Q5_K": 16}
FILE_TYPES |= {"Q6_K": 18, "TQ2_0": 37, "MXFP4": 38}
FLOATS = ("F32", "F16", "BF16")
ROWS = 16384
"""Of a weight that GPTQ works on together."""


@dataclass(frozen=True)
class Options:
    """How to quantize. calibration: a text file; None takes the built-in text. tokens, window: how
    much of it, in windows of so many tokens. types: formats of single tensors by name. target_bits:
    of "mixed", a weight of the whole file."""

    scheme: str = "q4_k"
    method: str = "rtn"
    calibration: Path | None = None
    tokens: int = 8192
    window: int = 512
    threads: int = 0
    force: bool = False
    types: Mapping[str, str] = field(default_factory=dict)
    target_bits: float = 5.0


@dataclass(frozen=True)
class Written:
    """What was written. fallbacks: how many tensors got another format than asked for, by the
    formats. warnings: what the user should know."""

    path: Path
    size_bytes: int
    bits_per_weight: float
    types: Mapping[str, int]
    fallbacks: Mapping[str, int]
    warnings: tuple[str, ...]
    resumed: bool


def quantize(
    model: Path, target: Path, options: Options, progress: Progress | None = None
) -> Written:
    """Write `model` (GGUF file or Hugging Face folder) as the GGUF file `target`, or as a folder of
    compressed-tensors where its name does not end in .gguf.

    An interrupted run goes on when it is called again; any error removes what was begun. Raises
    ModelError or InvalidParameterError.
    """
    folder = target.suffix != ".gguf"
    recipe = recipe_named(options.scheme, folder=folder)
    if options.method not in METHODS:
        known = ", ".join(METHODS)
        raise InvalidParameterError("method", f"got {options.method!r}, expected one of {known}")
    check_target(target, options.force)
    if recipe.name == "fp8" and options.method != "rtn":
        raise InvalidParameterError("method", "fp8 is rounded to nearest; use rtn")
    job = _Job(SourceModel(model), recipe, options, progress)
    if not folder:
        return job.run(target)
    blocks = target.with_name(f".{target.name}.blocks.gguf")
    try:
        written = job.run(blocks)
        write_compressed(blocks, target, recipe)
    finally:
        blocks.unlink(missing_ok=True)
    size = sum(file.stat().st_size for file in target.iterdir())
    bits = inspect_model(open_checkpoint(target)).bits_per_weight
    types = written.types
    if recipe.name == "fp8":  # rounded only on the way to the folder
        types = {"E4M3": sum(types.values())}
    return replace(written, path=target, size_bytes=size, bits_per_weight=bits, types=types)


class _Job:
    """One run."""

    def __init__(
        self, source: SourceModel, recipe: Recipe, options: Options, progress: Progress | None
    ) -> None:
        self.source, self.recipe, self.options = source, recipe, options
        self.progress = progress
        self.threads = num_threads(options.threads)
        self.types = dict(options.types)
        self._total = sum(t.size for t in source.checkpoint.tensors.values())
        self._work, self._count = self._total, 0
        self._importance: dict[str, Floats] = {}
        self._plan()

    def _plan(self) -> None:
        """A format for each tensor."""
        tensors = self.source.checkpoint.tensors
        self.apart = EMBEDDING in tensors and HEAD in tensors
        self.entries = [
            TensorEntry(name, t.shape, scheme_of(t, self.recipe, self.types, apart=self.apart))
            for name, t in tensors.items()
        ]
        self.schemes = {entry.name: entry.scheme for entry in self.entries}

    def run(self, target: Path) -> Written:
        forward = self._calibrate()
        with Sink(target, self._metadata(), self.entries) as sink:
            if "gptq" in self.options.method and forward is not None:
                self._by_layers(sink, forward)
            for entry in self.entries:
                if not sink.has(entry.name):
                    self._round(sink, entry)
            self._report("done", self._work)
            sink.finish()
        return self._written(target, sink.resumed)

    def _calibrate(self) -> Forward | None:
        """Observe inputs; for AWQ scale, for mixed formats choose them."""
        mixed = self.recipe.name == "mixed"
        if self.options.method == "rtn" and not mixed:
            return None
        text = calibration_text(self.options.calibration)
        windows = calibration_windows(
            self.source.checkpoint, text, self.options.tokens, self.options.window
        )
        forward = Forward(self.source.graph(), windows, self.source.expand, self.source.lookup)
        if self.options.method == "gptq" and not mixed:
            return forward
        scale = "awq" in self.options.method
        self._work += work_of(forward.graph, self.source)
        observed = observe(
            self.source,
            forward,
            self._scheme_of_part,
            self.threads,
            scale=scale,
            errors=mixed,
            progress=lambda name, numbers: self._report(f"observing {name}", numbers),
        )
        if self.options.method != "rtn":
            self._importance = observed.importance
        if mixed:
            self._mix(observed.errors)
        return forward

    def _mix(self, errors: Mapping[str, Sequence[tuple[Scheme, float]]]) -> None:
        """Choose formats within the budget that the target leaves to the layers' matrices. Parts of
        a joined tensor share one."""
        choices: dict[str, list[Choice]] = {}
        for name, part in self.source.parts.items():
            if name not in errors or part.stored in self.options.types:
                continue
            shape = self.source.checkpoint.tensors[part.stored].shape
            found = [Choice(s.name, s.num_bytes(shape), e) for s, e in errors[name]]
            known = choices.get(part.stored)
            if known is not None:
                found = [
                    Choice(a.scheme, a.size_bytes, a.error + b.error)
                    for a, b in zip(known, found, strict=True)
                ]
            choices[part.stored] = found
        others = sum(e.size_bytes for e in self.entries if e.name not in choices)
        budget = int(self.options.target_bits * self._total / 8) - others
        self.types |= choose(choices, budget)
        self._plan()

    def _scheme_of_part(self, name: str) -> Scheme | None:
        part = self.source.parts.get(name)
        scheme = self.schemes.get(part.stored) if part else None
        return self._grid(scheme) if scheme is not None and scheme.name not in FLOATS else None

    def _grid(self, scheme: Scheme) -> Scheme:
        """The scheme, or what stands for it while its scales are sought."""
        wide = self.recipe.group == 128 and scheme.name == self.recipe.body
        return WIDE if wide else scheme

    def _by_layers(self, sink: Sink, forward: Forward) -> None:
        """Products in their order, each with inputs that quantized weights before it have made."""
        last: tuple[Value, Floats] | None = None
        groups = groups_of(forward.graph)

        def supply(node: Node, weight: Value, x: Floats) -> Floats | None:
            nonlocal last
            name, source_value = weight.name, node.inputs[0]
            assert source_value is not None
            part, scheme = self.source.parts.get(name), self._scheme_of_part(name)
            self._importance.setdefault(name, mean_square(tempered(x)))
            head = node.output is forward.graph.output or name in (EMBEDDING, HEAD)
            if head and (name == EMBEDDING or scheme is None):
                return None
            if part is None or scheme is None:
                return self.source.expand(name)
            shape = (part.stop - part.start, x.shape[1])
            if sink.has_rows(part.stored, part.stop):
                return expanded(sink.read(part.stored, part.start, part.stop), shape, scheme)
            if last is None or last[0] is not source_value:
                names = groups[source_value]
                group = [self._sample(own, SAMPLE // len(names)) for own in names]
                factor = moments_factor(tempered(x), forward.window, group, scheme, self.threads)
                last = source_value, factor
            self._gptq(sink, name, part, last[1], scheme)
            if head:
                return None
            return expanded(sink.read(part.stored, part.start, part.stop), shape, scheme)

        forward.run(supply, supply_expert=_ExpertsByGptq(self, sink))

    def _gptq(self, sink: Sink, name: str, part: Part, factor: Floats, scheme: Scheme) -> None:
        """A weight in runs of rows, which do not depend on each other."""
        for start in range(part.start, part.stop, ROWS):
            rows = np.arange(start, min(start + ROWS, part.stop)) - part.start
            numbers = self.source.lookup(name, rows)
            blocks = gptq(numbers, factor, scheme, self.threads)
            sink.write(part.stored, blocks, start, start + len(rows))
            self._report(name, numbers.size)

    def _sample(self, name: str, count: int) -> Floats:
        """About so many rows of a weight."""
        size = self.source.fitted.tensors[name].shape[0]
        return self.source.lookup(name, np.arange(0, size, max(1, size // max(count, 1))))

    def _round(self, sink: Sink, entry: TensorEntry) -> None:
        """A tensor, in runs of rows so that a table of any size fits."""
        for start, values in self.source.runs(entry.name):
            stop = start + (len(values) if values.ndim else 1)
            sink.write(entry.name, self._encoded(entry, values, start), start, stop)
            self._report(entry.name, values.size)

    def _encoded(self, entry: TensorEntry, values: Floats, start: int) -> Bytes:
        """Rows from start on, or experts from start on."""
        from octavo.convert.tensors import ENCODERS

        if entry.scheme.name in FLOATS:
            return ENCODERS[entry.scheme.name](values)
        grid, blocks = self._grid(entry.scheme), []
        for rows, importance in self._parts_of(entry.name, start, start + len(values)):
            if importance is None or importance.ndim == 1:
                own = values[rows].reshape(-1, entry.shape[-1])
                blocks.append(rounded(own, grid, importance, self.threads))
                continue
            for expert, cost in zip(values[rows], importance, strict=True):
                blocks.append(rounded(expert, grid, cost, self.threads))
        return np.concatenate(blocks)

    def _parts_of(self, name: str, start: int, stop: int) -> list[tuple[slice, Floats | None]]:
        """Which of a tensor's rows, or experts, from start to stop are each of its parts', and the
        importance of their columns. Parts of a joined tensor have the same inputs, but how far
        these are to be trusted was tried for each."""
        found: list[tuple[slice, Floats | None]] = []
        for own, part in sorted(self.source.parts.items(), key=lambda item: item[1].start):
            begin, end = max(part.start, start), min(part.stop, stop)
            if part.stored != name or begin >= end:
                continue
            importance = self._importance.get(own)
            if importance is not None:
                importance = importance.astype(np.float32)
                importance = importance if importance.ndim == 1 else importance[begin:end]
            found.append((slice(begin - start, end - start), importance))
        return found or [(slice(None), None)]

    def _metadata(self) -> dict[str, Any]:
        weights = Counter[str]()
        for entry in self.entries:
            if is_quantized(self.source.checkpoint.tensors[entry.name]):
                weights[entry.scheme.name] += int(np.prod(entry.shape))
        most = weights.most_common(1)[0][0] if weights else "F32"
        return {
            **self.source.metadata(),
            "general.file_type": FILE_TYPES.get(most),
            "general.quantization_version": 2,
            "octavo.quantize.method": self.options.method,
            "octavo.quantize.scheme": self.options.scheme,
            "octavo.quantize.factors": self._digest(),
        }

    def _digest(self) -> str | None:
        """Of AWQ's factors: a run that was killed goes on only with the very same ones."""
        if not self.source.columns:
            return None
        digest = hashlib.sha256()
        for part in (self.source.rows, self.source.columns):
            for name, factor in part.items():
                digest.update(name.encode() + factor.tobytes())
        return digest.hexdigest()

    def _written(self, target: Path, resumed: bool) -> Written:
        sizes = sum(entry.size_bytes for entry in self.entries)
        tensors = self.source.checkpoint.tensors
        matrices = [entry for entry in self.entries if is_quantized(tensors[entry.name])]
        fallbacks = Counter[str]()
        for entry in matrices:
            wanted = self.recipe.wanted(entry.name, self.apart)
            wanted = self.types.get(entry.name, wanted)
            if entry.scheme.name != wanted:
                fallbacks[f"{wanted} -> {entry.scheme.name}"] += 1
        return Written(
            path=target,
            size_bytes=target.stat().st_size,
            bits_per_weight=8 * sizes / self._total,
            types=Counter(entry.scheme.name for entry in matrices),
            fallbacks=fallbacks,
            warnings=_warnings(tensors, matrices),
            resumed=resumed,
        )

    def _report(self, what: str, numbers: int) -> None:
        self._count = min(self._count + numbers, self._work)
        if self.progress is not None:
            self.progress(self._count, self._work, what)


class _ExpertsByGptq:
    """Supplies an expert's matrices by GPTQ. Few tokens may have chosen it, or none: it is damped
    accordingly, and none at all is rounding."""

    def __init__(self, job: _Job, sink: Sink) -> None:
        self._job, self._sink = job, sink

    def __call__(self, names: Sequence[str], expert: int, x: Floats) -> Sequence[Floats]:
        lookup, rows = self._job.source.lookup, np.array([expert])
        before = [lookup(name, rows)[0] for name in names]
        matrices = list(before)
        formats = [self._job._scheme_of_part(name) for name in names]
        factor: Floats | None = None
        for i, (name, matrix, scheme) in enumerate(zip(names, matrices, formats, strict=True)):
            part = self._job.source.parts.get(name)
            if part is None or scheme is None:
                continue
            if not self._sink.has_rows(part.stored, expert + 1):
                if factor is None:
                    factor = self._factor(x, before, scheme)
                blocks = gptq(matrix, factor, scheme, self._job.threads)
                self._sink.write(part.stored, blocks, expert, expert + 1)
                self._job._report(name, matrix.size)
            blocks = self._sink.read(part.stored, expert, expert + 1)
            matrices[i] = expanded(blocks, matrix.shape, scheme)
        return matrices

    def _factor(self, x: Floats, matrices: Sequence[Floats], scheme: Scheme) -> Floats:
        window = max(1, -(-len(x) // HELD_OUT))
        count = SAMPLE // len(matrices)
        some = [matrix[:: max(1, len(matrix) // count)] for matrix in matrices]
        return moments_factor(tempered(x), window, some, scheme, self._job.threads)


def _warnings(tensors: Mapping[str, Any], matrices: Sequence[TensorEntry]) -> tuple[str, ...]:
    before = Counter(tensors[entry.name].scheme.name for entry in matrices)
    lossy = {name: count for name, count in before.items() if name not in FLOATS}
    if not lossy:
        return ()
    listed = ", ".join(f"{count} as {name}" for name, count in lossy.items())
    return (
        f"the source is quantized already ({listed}); what it lost is lost, and rounding again"
        " loses more. Start from float weights where you can",
    )
