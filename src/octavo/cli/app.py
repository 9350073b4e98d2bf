"""The command tree. Importing this loads typer; a command loads when it is called or listed."""

from __future__ import annotations

import gc
from typing import Annotated, Any

import typer

from octavo.cli.errors import OctavoGroup
from octavo.cli.tree import Commands
from octavo.cli.version import print_version

COMMANDS = Commands(
    {
        "run": "octavo.cli.run:run",
        "chat": "octavo.cli.chat.command:chat",
        "serve": "octavo.cli.serve:serve",
        "batch": "octavo.cli.batch:batch",
        "embed": "octavo.cli.embed:embed",
        "rerank": "octavo.cli.embed:rerank",
        "pull": "octavo.cli.pull:pull",
        "inspect": "octavo.cli.inspect:inspect",
        "convert": "octavo.cli.convert:convert",
        "quantize": "octavo.cli.quantize:quantize",
        "plan": "octavo.cli.plan:plan",
        "version": "octavo.cli.version:version",
        "bench": "octavo.cli.bench:app",
        "eval": "octavo.cli.eval:app",
    }
)


class _Tree(OctavoGroup):
    """The root of all commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": COMMANDS})


app = typer.Typer(
    cls=_Tree,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: octavo run smollm2 'Why is the sky blue?'",
)


_UNTIL_LOADED = ("run", "chat")
"""Commands that turn garbage collection on themselves, once their model is loaded."""


@app.callback()
def octavo(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="OCTAVO_DEBUG", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Octavo: large-language-model inference on plain CPUs."""
    if context.invoked_subcommand not in _UNTIL_LOADED:
        gc.enable()
