"""`octavo version` and `octavo --version`."""

from __future__ import annotations

import platform

import typer


def version_line() -> str:
    """ "octavo 0.1.0"."""
    from octavo import __version__

    return f"octavo {__version__}"


def print_version(wanted: bool) -> None:
    """The eager callback behind --version."""
    if wanted:
        print(version_line())
        raise typer.Exit


def version() -> None:
    """Print the version, the instruction set in use and the number of threads."""
    from octavo.bench import describe_machine

    machine = describe_machine()
    print(version_line())
    print(f"instruction set: {machine.isa}")
    print(f"threads: {machine.threads} ({machine.cpu})")
    print(f"python: {platform.python_version()} on {platform.platform()}")
