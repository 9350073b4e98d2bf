"""The table, the JSON file and the plot of one comparison."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Line:
    """One task; octavo[i] and llama_cpp[i] were measured one right after the other."""

    task: str
    octavo: list[float] = field(default_factory=list)
    llama_cpp: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Octavo over llama.cpp, pair by pair: what a noisy machine disturbs least."""
        return [a / b for a, b in zip(self.octavo, self.llama_cpp, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "ratios": self.ratios}


def table(lines: list[Line]) -> str:
    """Markdown; a rate is the median and, in brackets, the lowest and highest run."""
    rows = ["| tokens/s | Octavo | llama.cpp | ratio |", "|---|---:|---:|---:|"]
    rows += [
        f"| {x.task} | {_rate(x.octavo)} | {_rate(x.llama_cpp)} "
        f"| {x.ratio:.2f} ({min(x.ratios):.2f}-{max(x.ratios):.2f}) |"
        for x in lines
    ]
    return "\n".join(rows)


def write_json(path: Path, lines: list[Line], facts: dict[str, Any]) -> None:
    """facts: model, machine, versions: whatever the numbers depend on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {**facts, "results": [line.as_dict() for line in lines]}
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def write_plot(path: Path, lines: list[Line], title: str) -> None:
    """Ratios as bars, every repetition as a dot, llama.cpp as the line at 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 2.6), layout="constrained")
    names = [line.task for line in lines]
    axes.barh(names, [line.ratio for line in lines], color="#4c72b0", height=0.55)
    for line in lines:
        axes.plot(line.ratios, [line.task] * len(line.ratios), "o", color="#222222", markersize=3)
        axes.annotate(f" {line.ratio:.1f}x", (max(line.ratios), line.task), va="center")
    axes.axvline(1.0, color="#c44e52", linewidth=1)
    axes.set_xlabel("Octavo / llama.cpp, tokens per second (red: the same speed)")
    axes.set_title(title, fontsize=10)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    figure.savefig(path)


def _rate(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"
