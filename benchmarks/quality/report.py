"""The table, the JSON file and the plot of the quality report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo.eval import Divergence, Estimate

COLOURS = {"Octavo": "#4c72b0", "llama.cpp": "#c44e52"}


@dataclass(frozen=True)
class Judged:
    """One model file: what every engine made of it. results: by name, in the table's order."""

    model: str
    results: dict[str, Divergence]

    @property
    def beyond(self) -> Estimate:
        """Octavo's KL minus llama.cpp's on the same tokens; below zero Octavo is closer."""
        return self.results["Octavo"].kl_beyond(self.results["llama.cpp"])

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "kl_octavo_minus_llama_cpp": asdict(self.beyond),
            "results": [result.as_dict() for result in self.results.values()],
        }


def table(judged: list[Judged]) -> str:
    """Markdown, a row for each model and engine."""
    rows = [
        "| model | engine | KL, mean | median | 99 % | largest | same top token | perplexity |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in judged:
        reference = next(iter(one.results.values())).reference
        rows += [_row(one.model, result) for result in one.results.values()]
        rows.append(f"| {one.model} | float32 | 0 | | | | | {_pm(reference.perplexity, 3)} |")
    return "\n".join(rows)


def _row(model: str, result: Divergence) -> str:
    kls = " | ".join(f"{x:.5f}" for x in (result.kl_median, result.kl_p99, result.kl_max))
    agreement = f"{result.agreement.mean:.2%} ± {result.agreement.stderr:.2%}"
    perplexity = f"{result.candidate.perplexity.mean:.3f}"
    return f"| {model} | {result.name} | {_pm(result.kl, 5)} | {kls} | {agreement} | {perplexity} |"


def _pm(estimate: Estimate, digits: int) -> str:
    return f"{estimate.mean:.{digits}f} ± {estimate.stderr:.{digits}f}"


def write_json(path: Path, judged: list[Judged], facts: dict[str, Any]) -> None:
    """facts: whatever the numbers depend on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {**facts, "models": [one.as_dict() for one in judged]}
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def write_plot(path: Path, judged: list[Judged], title: str) -> None:
    """Mean KL of both engines for each model, with standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 2.8), layout="constrained")
    for shift, (name, colour) in zip((-0.19, 0.19), COLOURS.items(), strict=True):
        kls = [one.results[name].kl for one in judged]
        places = [i + shift for i in range(len(judged))]
        errors = [kl.stderr for kl in kls]
        bars = axes.barh(
            places, [kl.mean for kl in kls], 0.36, xerr=errors, color=colour, label=name
        )
        axes.bar_label(bars, [f"{kl.mean:.5f}" for kl in kls], padding=4, fontsize=8)
    axes.set_yticks(range(len(judged)), [one.model for one in judged])
    axes.set_xlabel("KL divergence from float32, nats a token (shorter is better)")
    axes.set_title(title, fontsize=10)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.legend(fontsize=8)
    figure.savefig(path)
