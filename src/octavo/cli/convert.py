"""`octavo convert`: a Hugging Face folder to a GGUF file, and back."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.options import ModelArg


class Dtype(StrEnum):
    """octavo.convert.DTYPES, for the command line."""

    AUTO = "auto"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"


def convert(
    model: ModelArg,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The GGUF file to write for a folder, the folder for a GGUF file.",
        ),
    ],
    dtype: Annotated[
        Dtype,
        typer.Option(
            "--dtype",
            help="Of matrices. auto: floats as they are; quantized ones widened in a folder.",
        ),
    ] = Dtype.AUTO,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Write a model in the other format: Hugging Face folder to GGUF, GGUF to folder.

    Weights, configuration, tokenizer and chat templates go along. Both ways the model stays the
    same, which is checked before anything is written; what the other format cannot say is an error.

    [bold]Examples[/bold]

    octavo convert ./Llama-3.2-1B-Instruct -o llama.gguf --dtype bf16

    octavo convert smollm2 -o ./smollm2
    """
    from octavo.cli.progress import download_progress
    from octavo.convert import convert as run
    from octavo.weights import resolve

    with download_progress() as progress:
        path = resolve(model, progress=progress)
    with download_progress() as progress:
        run(path, output, dtype=dtype.value, force=force, progress=progress)
    print(output)
