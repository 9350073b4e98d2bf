"""`octavo inspect`: what is in a model and what it will need. Reads headers only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.options import ModelArg
from octavo.cli.text import size
from octavo.errors import ModelError

if TYPE_CHECKING:
    from octavo.models import ModelConfig
    from octavo.weights import Checkpoint, Inspection

KV_ELEMENT_BYTES = 2
"""Both 16-bit types of the KV cache."""


def inspect(
    model: ModelArg,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    metadata: Annotated[bool, typer.Option("--metadata", help="List every metadata key.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What is in a model file and what running it will need. Nothing is loaded.

    [bold]Examples[/bold]

    octavo inspect smollm2

    octavo inspect ./model.gguf --tensors
    """
    from octavo.cli.progress import download_progress
    from octavo.weights import inspect_model, open_checkpoint, resolve

    with download_progress() as progress:
        path = resolve(model, progress=progress)
    checkpoint = open_checkpoint(path)
    report = _report(inspect_model(checkpoint), _config(checkpoint))
    report["notes"] = list(checkpoint.notes)
    if tensors:
        report["tensors"] = [_tensor(t) for t in checkpoint.tensors.values()]
    if metadata:
        report["metadata"] = {key: _short(value) for key, value in checkpoint.metadata.items()}
    if as_json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        _print(report)


def kv_bytes_per_token(config: ModelConfig) -> int:
    """Keys and values of all layers for one token, in 16-bit floats; an encoder keeps none."""
    return 0 if config.encoder is not None else config.cached_per_token * KV_ELEMENT_BYTES


def _config(checkpoint: Checkpoint) -> ModelConfig | ModelError:
    """The model's configuration, or why this build cannot run it: both are worth showing."""
    from octavo.models import config_from

    try:
        return config_from(checkpoint)
    except ModelError as error:
        return error


def _report(facts: Inspection, config: ModelConfig | ModelError) -> dict[str, Any]:
    report: dict[str, Any] = {
        "path": str(facts.path),
        "format": facts.format,
        "name": facts.name,
        "architecture": facts.architecture,
        "parameters": facts.num_parameters,
        "file_bytes": facts.file_bytes,
        "bits_per_weight": round(facts.bits_per_weight, 3),
        "layers": facts.num_layers,
        "context_length": facts.context_length,
        "vocab_size": facts.vocab_size,
        "tokenizer": facts.tokenizer,
        "chat_template": facts.has_chat_template,
        "schemes": [
            {
                "type": use.scheme.name,
                "tensors": use.num_tensors,
                "elements": use.num_elements,
                "bytes": use.size_bytes,
                "runs": use.scheme.native,
                "kept_as": use.kept_as,
                "kept_bytes": use.kept_bytes,
            }
            for use in facts.by_scheme
        ],
        "weight_bytes": facts.tensor_bytes,
        "kept_bytes": facts.kept_bytes,
    }
    if isinstance(config, ModelError):
        return report | {"runs": False, "why_not": str(config)}
    runs = not facts.unsupported
    why = None if runs else f"types that no backend computes with: {', '.join(facts.unsupported)}"
    return report | {"runs": runs, "why_not": why} | _needs(facts, config)


def _needs(facts: Inspection, config: ModelConfig) -> dict[str, Any]:
    per_token = kv_bytes_per_token(config)
    sizes = [n for n in (2048, 8192, 32768, 131072) if n < config.context_length]
    return {
        "hidden_size": config.hidden_size,
        "heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "sliding_window": config.sliding_window,
        "kv_bytes_per_token": per_token,
        "memory": [
            {
                "context": n,
                "kv_bytes": n * per_token,
                "total_bytes": facts.kept_bytes + n * per_token,
            }
            for n in [*sizes, config.context_length]
        ],
    }


def _tensor(tensor: Any) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "type": tensor.scheme.name,
        "bytes": tensor.num_bytes,
    }


def _short(value: Any) -> Any:
    """A metadata value fit for a screen and for JSON: long arrays become their length."""
    if hasattr(value, "__len__") and not isinstance(value, str | dict) and len(value) > 16:
        return f"[{len(value)} values]"
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    facts = Table(show_header=False, box=None, pad_edge=False)
    for label, value in _lines(report):
        facts.add_row(f"[bold]{label}[/bold]", escape(value))
    console.print(facts)
    console.print(_scheme_table(report["schemes"]))
    if "memory" in report:
        console.print(_memory_table(report["memory"]))
    for tensor in report.get("tensors", ()):
        print(f"{tensor['name']:<40} {tensor['type']:>6} {tensor['shape']}")
    for key, value in report.get("metadata", {}).items():
        print(f"{key} = {value!r}")


def _lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("file", f"{report['path']} ({report['format']}, {size(report['file_bytes'])})"),
        ("model", f"{report['name'] or '?'} ({report['architecture'] or 'unknown'})"),
        ("parameters", f"{report['parameters']:,} at {report['bits_per_weight']} bits"),
        ("layers", _or(report["layers"])),
        ("context", f"{_or(report['context_length'])} tokens"),
        ("vocabulary", f"{_or(report['vocab_size'])} ({report['tokenizer'] or 'no tokenizer'})"),
        ("chat template", "yes" if report["chat_template"] else "no"),
    ]
    if "heads" in report:
        heads = f"{report['heads']} query, {report['kv_heads']} KV, of {report['head_dim']}"
        lines.insert(4, ("heads", heads))
        lines.append(("KV cache", f"{size(report['kv_bytes_per_token'])} a token"))
    lines += [("note", note) for note in report.get("notes", ())]
    lines.append(("runs here", "yes" if report["runs"] else f"no: {report['why_not']}"))
    return lines


def _scheme_table(schemes: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="tensors by type", title_justify="left")
    for name in ("type", "tensors", "elements", "size", "bits/weight", "kept as"):
        table.add_column(name, justify="left" if name == "type" else "right")
    for use in schemes:
        bits = 8 * use["bytes"] / use["elements"] if use["elements"] else 0
        table.add_row(
            use["type"] if use["runs"] else f"{use['type']} (not supported)",
            str(use["tensors"]),
            f"{use['elements']:,}",
            size(use["bytes"]),
            f"{bits:.2f}",
            _kept(use),
        )
    return table


def _kept(use: dict[str, Any]) -> str:
    """The form in memory, and what it costs where it is another one."""
    if use["kept_as"] == use["type"]:
        return "itself"
    return f"{use['kept_as']}, {size(max(0, use['kept_bytes'] - use['bytes']))} more"


def _memory_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="memory for one stream (weights and KV cache)", title_justify="left")
    for name in ("context", "KV cache", "with weights"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(f"{row['context']:,}", size(row["kv_bytes"]), size(row["total_bytes"]))
    return table


def _or(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
