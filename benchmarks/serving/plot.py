"""One bar a server, one panel a number."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path


def write_plot(
    path: Path, runs: dict[str, list[dict[str, float]]], numbers: Sequence[str], title: str
) -> None:
    """Medians as bars, repetitions as dots."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (8, 0.9 + 0.35 * len(runs))
    figure, panels = pyplot.subplots(
        1, len(numbers), figsize=size, layout="constrained", sharey=True
    )
    for axes, number in zip(panels, numbers, strict=True):
        for name, found in runs.items():
            values = [run[number] for run in found]
            middle = statistics.median(values)
            axes.barh(name, middle, 0.6, color="#4c72b0" if "Octavo" in name else "#c44e52")
            axes.plot(values, [name] * len(values), ".", color="#222", markersize=4)
            axes.annotate(f" {middle:.0f}", (max(values), name), va="center", fontsize=8)
        axes.set_xlabel(number)
        axes.margins(x=0.15)
    panels[0].invert_yaxis()
    figure.suptitle(title, fontsize=10)
    figure.savefig(path)
    pyplot.close(figure)
