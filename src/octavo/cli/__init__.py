"""The `octavo` command. `main` is the door; nothing else imports this package."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line in sys.argv and exit with its code."""
    from octavo.cli.app import app

    app(prog_name="octavo")
