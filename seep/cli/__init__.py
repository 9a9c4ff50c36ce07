"""The command line `seep`."""

from __future__ import annotations


def main() -> None:
    """Runs the command that the arguments of the process name, and exits."""
    from seep.cli.app import app

    app()
