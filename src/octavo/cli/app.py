"""The command tree. Importing this loads typer and the options, nothing that computes."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli.batch import batch
from octavo.cli.bench import app as bench_app
from octavo.cli.bench_serve import bench_serve
from octavo.cli.chat.command import chat
from octavo.cli.convert import convert
from octavo.cli.embed import embed, rerank
from octavo.cli.errors import OctavoGroup
from octavo.cli.eval import app as eval_app
from octavo.cli.inspect import inspect
from octavo.cli.plan import plan
from octavo.cli.pull import pull
from octavo.cli.quantize import quantize
from octavo.cli.run import run
from octavo.cli.serve import serve
from octavo.cli.version import print_version, version

app = typer.Typer(
    cls=OctavoGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: octavo run smollm2 'Why is the sky blue?'",
)


@app.callback()
def octavo(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="OCTAVO_DEBUG", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Octavo: large-language-model inference on plain CPUs."""


for command in (run, chat, serve, batch, embed, rerank, pull, inspect, convert, quantize, plan):
    app.command()(command)
app.command()(version)
bench_app.command("serve")(bench_serve)
app.add_typer(bench_app, name="bench")
app.add_typer(eval_app, name="eval")
