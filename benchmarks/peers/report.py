"""The table, the JSON file and the plot of one comparison."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "Octavo"
COLOURS = ("#c44e52", "#dd8452", "#8172b3", "#937860")


@dataclass
class Line:
    """One task; rates[name][i] were measured one right after the other in repetition i."""

    task: str
    rates: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rivals(self) -> list[str]:
        """Who else could do the task."""
        return [name for name in self.rates if name != OURS]

    def ratios(self, rival: str) -> list[float]:
        """Octavo over a rival, pair by pair: what a noisy machine disturbs least."""
        return [a / b for a, b in zip(self.rates[OURS], self.rates[rival], strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        ratios = {name: self.ratios(name) for name in self.rivals}
        medians = {name: statistics.median(values) for name, values in ratios.items()}
        return {"task": self.task, "rates": self.rates, "ratio": medians, "ratios": ratios}


def table(lines: list[Line], rivals: list[str]) -> str:
    """Markdown; a rate is the median and, in brackets, the lowest and highest run; a ratio is
    Octavo over the rival, pair by pair."""
    heads = [head for name in rivals for head in (name, "ratio")]
    rows = [f"| tokens/s | {OURS} | {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) + 1)]
    for line in lines:
        cells = [line.task, _spread(line.rates[OURS], 0)]
        for name in rivals:
            done = name in line.rates
            cells += [_spread(line.rates[name], 0) if done else "-"]
            cells += [_spread(line.ratios(name), 2) if done else "-"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write_json(path: Path, lines: list[Line], facts: dict[str, Any]) -> None:
    """facts: model, machine, versions: whatever the numbers depend on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {**facts, "results": [line.as_dict() for line in lines]}
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def write_plot(path: Path, lines: list[Line], rivals: list[str], title: str) -> None:
    """Median rates as bars, relative to Octavo's, every repetition as a dot."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [OURS, *rivals]
    height = 0.8 / len(names)
    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.5 * len(names)), layout="constrained")
    for place, name in enumerate(names):
        colour = "#4c72b0" if name == OURS else COLOURS[(place - 1) % len(COLOURS)]
        label = name
        for row, line in enumerate(lines):
            if name not in line.rates:
                continue
            values = line.rates[name]
            ours, mine = statistics.median(line.rates[OURS]), statistics.median(values)
            y = row + (place - (len(names) - 1) / 2) * height
            axes.barh(y, mine / ours, height * 0.9, color=colour, label=label)
            label = "_"
            axes.plot(
                [v / ours for v in values], [y] * len(values), ".", color="#222", markersize=3
            )
            axes.annotate(f" {mine:.0f}", (max(values) / ours, y), va="center", fontsize=8)
    axes.set_yticks(range(len(lines)), [line.task for line in lines])
    axes.set_xlabel("tokens per second, relative to Octavo")
    axes.set_title(title, fontsize=10)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.legend(fontsize=8)
    figure.savefig(path)


def _spread(values: list[float], digits: int) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"
