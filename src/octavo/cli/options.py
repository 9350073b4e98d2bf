"""Options that several commands share, each declared once, and what is built from them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from octavo.cli.errors import usage_error

if TYPE_CHECKING:
    from octavo.decoding import SamplingParams
    from octavo.engine import EngineOptions

ENGINE = "Engine"
SAMPLING = "Sampling"

ONLY_ADAPTER = "adapter"
"""What a command calls the adapter that it answers with."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes from "512M", "2GiB", "1.5g" or "1048576"; units are powers of 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if match is None or (size := int(float(match[1]) * _UNITS[match[2]])) == 0:
        raise typer.BadParameter(f"{text!r} is not a size; write 512M or 2G")
    return size


def writable(path: Path | None) -> Path | None:
    """A file to be written at the end, refused now where that cannot succeed."""
    if path is not None:
        place = path if path.exists() else path.absolute().parent
        if path.is_dir() or not place.exists() or not os.access(place, os.W_OK):
            raise typer.BadParameter(f"{str(path)!r} cannot be written")
    return path


ModelArg = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A file, a folder, a short name (smollm2) or a Hugging Face id (owner/name).",
        show_default=False,
    ),
]

Threads = Annotated[
    int,
    typer.Option("--threads", "-t", min=0, rich_help_panel=ENGINE, help="0: what the machine has."),
]
Backend = Annotated[
    str, typer.Option("--backend", rich_help_panel=ENGINE, help="cpu or reference (slow, exact).")
]
Weights = Annotated[
    str,
    typer.Option(
        "--weights",
        rich_help_panel=ENGINE,
        help="native: as stored; float: widened to float32; int8: floats rounded.",
    ),
]
KvDtype = Annotated[
    str,
    typer.Option(
        "--kv-dtype", rich_help_panel=ENGINE, help="KV cache: auto, f32, f16, bf16, int8, int4."
    ),
]
Products = Annotated[
    str,
    typer.Option(
        "--products",
        rich_help_panel=ENGINE,
        help="What quantized weights are multiplied in: int8, or where the processor has such "
        "tiles bf16 (faster with prompts and many streams, slower with one) or mixed (bf16 for "
        "prompts, int8 for answers); auto: mixed where it can be.",
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        min=1,
        rich_help_panel=ENGINE,
        help="Longest prompt plus output, in tokens.",
        show_default="the model's",
    ),
]
KvMemory = Annotated[
    int | None,
    typer.Option(
        "--kv-cache-memory",
        metavar="SIZE",
        parser=parse_size,
        rich_help_panel=ENGINE,
        help="Memory for the KV cache, such as 512M or 2G.",
        show_default="planned",
    ),
]
Lora = Annotated[
    str | None,
    typer.Option(
        "--lora",
        metavar="FOLDER",
        rich_help_panel=ENGINE,
        help="Answer with this LoRA adapter.",
        show_default=False,
    ),
]
Adapters = Annotated[
    list[str] | None,
    typer.Option(
        "--lora",
        metavar="NAME=FOLDER",
        rich_help_panel=ENGINE,
        help="A LoRA adapter that requests may name as their model. May be repeated.",
        show_default=False,
    ),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, rich_help_panel=SAMPLING, help="Longest answer.")
]
Temperature = Annotated[
    float,
    typer.Option("--temperature", min=0, rich_help_panel=SAMPLING, help="0: always the likeliest."),
]
TopK = Annotated[
    int, typer.Option("--top-k", min=-1, rich_help_panel=SAMPLING, help="Keep the k best; 0: all.")
]
TopP = Annotated[
    float, typer.Option("--top-p", rich_help_panel=SAMPLING, help="Keep this much probability.")
]
MinP = Annotated[
    float,
    typer.Option(
        "--min-p", rich_help_panel=SAMPLING, help="Keep those above min-p times the best."
    ),
]
RepetitionPenalty = Annotated[
    float, typer.Option("--repetition-penalty", rich_help_panel=SAMPLING, help="1: off.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", rich_help_panel=SAMPLING, help="Makes sampling repeatable.", show_default=False
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        rich_help_panel=SAMPLING,
        help="End the answer here. May be repeated.",
        show_default=False,
    ),
]
System = Annotated[
    str | None, typer.Option("--system", "-s", help="The system message.", show_default=False)
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the memory plan to stderr.")]


class EngineChoices(Struct, frozen=True):
    """The engine options of one command line, before they meet a model."""

    threads: int = 0
    backend: str = "cpu"
    weights: str = "native"
    kv_dtype: str = "auto"
    max_model_len: int | None = None
    kv_cache_bytes: int | None = None
    lora: str | None = None
    products: str = "auto"

    def options(self, model: str, **more: Any) -> EngineOptions:
        """EngineOptions for a model; `more` are further fields of it."""
        from octavo.engine import EngineOptions

        if self.lora is not None:
            more["lora"] = {ONLY_ADAPTER: self.lora}
        return EngineOptions(
            model=model,
            backend=self.backend,
            weights=self.weights,
            kv_dtype=self.kv_dtype,
            products=self.products,
            num_threads=self.threads,
            max_model_len=self.max_model_len,
            kv_cache_bytes=self.kv_cache_bytes,
            **more,
        )


def named_adapters(given: list[str], taken: tuple[str, ...]) -> dict[str, str]:
    """What --lora says, name -> folder. taken: names that are not free."""
    found: dict[str, str] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not path:
            usage_error(f"--lora: got {text!r}, expected NAME=FOLDER")
        if name in (*taken, *found):
            usage_error(f"--lora: the name {name!r} is in use already")
        found[name] = path
    return found


def sampling_params(
    *,
    max_tokens: int,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    stop: list[str] | None = None,
    ignore_eos: bool = False,
) -> SamplingParams:
    """SamplingParams of one command line; a bad value raises InvalidParameterError."""
    from octavo.decoding import SamplingParams

    return SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
