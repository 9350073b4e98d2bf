"""The `octavo` command. `main` is the door; nothing else imports this package."""

from __future__ import annotations

import gc

__all__ = ["main"]


def main() -> None:
    """Run the command line in sys.argv and exit with its code (docs/cli.md lists them)."""
    gc.disable()  # nearly all that a start allocates stays; commands turn it on again
    try:
        from octavo.cli.errors import report_system
        from octavo.cli.streams import finish, prepare

        prepare()
        from octavo.cli.app import app

        try:
            app(prog_name="octavo")
        except OSError as error:  # of --help, which is printed before any command runs
            report_system(error)
            raise SystemExit(1) from None
        finally:
            finish()
    except KeyboardInterrupt:  # before a command runs; from then on the group reports it
        raise SystemExit(130) from None
