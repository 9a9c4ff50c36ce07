"""The command line `seep`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command given in the arguments of the process, and exits."""
    try:
        from seep.cli.app import app
    except ImportError as reason:
        sys.exit(_explain_namesakes(reason))
    from seep.cli.options import with_values

    app(with_values(sys.argv[1:]))


def _explain_namesakes(reason: ImportError) -> str:
    """Explains a failed import by packages of others with the names of ours; raises it again if there are none."""
    from seep.spark.namesakes import foreign

    found = foreign()
    if not found:
        raise reason
    return "\n".join(f"environment: {each}" for each in found)
