"""The command line `seep`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command that the arguments of the process name, and exits."""
    try:
        from seep.cli.app import app
    except ImportError as reason:
        sys.exit(_because_of_namesakes(reason))
    app()


def _because_of_namesakes(reason: ImportError) -> str:
    """Why an import of ours failed, as far as packages of others are in the way; raises it again if they are not."""
    from seep.spark.namesakes import foreign

    found = foreign()
    if not found:
        raise reason
    return "\n".join(f"environment: {each}" for each in found)
