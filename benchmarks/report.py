"""What the benchmarks share: a Markdown table, a JSON file, facts about where they ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown: the first column to the left, numbers to the right; as wide as it needs."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = [":".ljust(widths[0], "-"), *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join([line(head), line(rule), *map(line, rows)])


def write_json(path: Path, results: Any, **facts: Any) -> None:
    """facts: what the numbers depend on; the machine is added. Makes the folder."""
    from octavo import __version__
    from octavo.bench import describe_machine

    path.parent.mkdir(parents=True, exist_ok=True)
    machine = asdict(describe_machine())
    report = {"octavo": __version__, "machine": machine, **facts, "results": results}
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
