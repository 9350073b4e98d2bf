"""A load test as one HTML file: tables, and plots as inline SVG. Nothing is fetched to show it."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.bench.load.results import Distribution, LoadResult
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fdfdfb }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .25rem .8rem;
  text-align: right; border-bottom: 1px solid #ddd } th:first-child, td:first-child {
  text-align: left } svg { max-width: 100%; height: auto }
"""


def write_html(path: Path, result: LoadResult, title: str) -> None:
    """Raises OctavoError without matplotlib."""
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(result.load)}; {html.escape(result.prompts)}</p>",
        _table(("", "value"), summary_rows(result)),
        _table(("milliseconds", "mean", "p50", "p90", "p99"), latency_rows(result)),
        _plots(result),
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    text = f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'
    path.write_text(text, encoding="utf-8")


def summary_rows(result: LoadResult) -> list[tuple[str, ...]]:
    """(name, value) of everything that is one number."""
    rows: list[tuple[str, ...]] = [
        ("good answers", str(result.num_good)),
        *((f"failed: {kind}", str(count)) for kind, count in sorted(result.errors.items())),
        ("seconds", f"{result.wall_s:.1f}"),
        ("prompt tokens (of them cached)", f"{result.prompt_tokens} ({result.cached_tokens})"),
        ("output tokens", str(result.output_tokens)),
        ("output tokens/s", f"{result.output_tps:.1f}"),
        ("all tokens/s", f"{result.total_tps:.1f}"),
        ("requests/s", f"{result.requests_per_s:.2f}"),
    ]
    if result.slo_met is not None:
        share = result.slo_met / max(1, result.num_good + sum(result.errors.values()))
        rows.append((f"within {result.slo}", f"{result.slo_met} ({share:.0%})"))
        rows.append(("goodput, requests/s", f"{result.goodput_per_s:.2f}"))
    if result.cost_per_million is not None:
        rows.append(("cost per million output tokens", f"{result.cost_per_million:.2f}"))
    return rows


def latency_rows(result: LoadResult) -> list[tuple[str, ...]]:
    """(name, mean, p50, p90, p99) in milliseconds."""
    times = {
        "TTFT": result.ttft,
        "inter-token": result.inter_token,
        "time per output token": result.tpot,
        "end-to-end": result.e2e,
    }
    return [(name, *_milliseconds(found)) for name, found in times.items()]


def _milliseconds(found: Distribution | None) -> list[str]:
    if found is None:
        return ["-"] * 4
    return [f"{1e3 * v:.1f}" for v in (found.mean, found.p50, found.p90, found.p99)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in cells)}</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def _plots(result: LoadResult) -> str:
    try:
        import matplotlib
    except ImportError:
        raise OctavoError(
            "bench: the HTML report needs matplotlib; pip install 'octavo[bench]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    good = [record for record in result.records if record.good]
    figure, (times, flow) = pyplot.subplots(2, 1, figsize=(8, 7), layout="constrained")
    _cumulative(times, "TTFT", [1e3 * record.ttft_s for record in good])
    _cumulative(times, "inter-token", [1e3 * gap for r in good for gap in r.inter_token_s])
    _cumulative(times, "end-to-end", [1e3 * record.e2e_s for record in good])
    times.set(xscale="log", xlabel="milliseconds", ylabel="share of requests or gaps")
    times.legend()
    flow.hist([t for r in good for t in r.piece_times_s], bins=60, color="#4c72b0")
    flow.set(xlabel="seconds from the start", ylabel="pieces of answers")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def _cumulative(axes: Axes, name: str, values: list[float]) -> None:
    """The share of values up to each value."""
    if values:
        count = len(values)
        shares = [(i + 1) / count for i in range(count)]
        axes.step(sorted(max(v, 1e-3) for v in values), shares, where="post", label=name)
