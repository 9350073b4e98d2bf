"""The table, the JSON file and the plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.quantizing.judge import Judged

COLOURS = {"Octavo": "#4c72b0", "llama.cpp": "#c44e52"}


def rows_of(judged: dict[str, Judged]) -> list[dict[str, Any]]:
    """What goes into the file: each row with its KL beyond every other file's, token by token."""
    return [
        {k: v for k, v in one.row.items() if k != "mark"}
        | {"kl_beyond": {o: one.beyond(b) for o, b in judged.items() if b is not one}}
        for one in judged.values()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| | size | bits in layers | KL | same top token | perplexity |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        kl, agreement = row["kl"], row["agreement"]
        lines.append(
            f"| {row['name']} | {row['size_bytes'] / 1e6:.1f} MB | {row['layer_bits']:.2f}"
            f" | {kl['mean']:.4f} ± {kl['stderr']:.4f} | {agreement['mean']:.1%}"
            f" | {row['perplexity']['mean']:.2f} |"
        )
    reference = rows[0]["reference_perplexity"]["mean"]
    return "\n".join([*lines, f"| the float model | | | 0 | | {reference:.2f} |"])


def write(out: Path, rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """out.json and out.svg."""
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts | {"results": rows}, indent=2)
    out.with_name(f"{out.name}.json").write_text(text + "\n", encoding="utf-8")
    _plot(out.with_name(f"{out.name}.svg"), rows, facts["model"])


def _plot(path: Path, rows: list[dict[str, Any]], model: str) -> None:
    """KL over size: further down and to the left is better."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for row in rows:
        maker, kind = row["name"].split(" ", 1)
        place, kl = row["size_bytes"] / 1e6, row["kl"]
        axes.errorbar(place, kl["mean"], kl["stderr"], fmt="o", color=COLOURS[maker], capsize=2)
        shift, side = ((5, 3), "left") if maker == "Octavo" else ((-5, -9), "right")
        axes.annotate(
            kind, (place, kl["mean"]), shift, textcoords="offset points", fontsize=8, ha=side
        )
    axes.set_xlabel("file, MB")
    axes.set_ylabel("KL divergence from the start, nats a token")
    axes.set_title(f"{model}: Octavo blue, llama.cpp red", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.2)
    figure.savefig(path, metadata={"Date": None})
