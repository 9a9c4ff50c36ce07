"""The common parts of the scripts here: `--json`, and the output of figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.table import Target, table

_LAST_LINE = Path("-")


def parser_of(doc: str | None, example: str) -> argparse.ArgumentParser:
    """That of a script with this docstring."""
    made = argparse.ArgumentParser(
        description=doc, epilog=f"example: python {example}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    help_text = "what was measured as one JSON object: the last line, or a file"
    made.add_argument("--json", type=Path, nargs="?", const=_LAST_LINE, metavar="FILE", help=help_text)
    return made


def progress(what: str) -> None:
    """Says what is being measured, as it takes its time."""
    print(f"measuring {what}", file=sys.stderr, flush=True)


def tell(measured: Mapping[str, float], targets: Mapping[str, Target], to: Path | None) -> None:
    """A table, and JSON where it is wanted: `to` is what `--json` says."""
    print(table(targets, measured))
    tell_json({key: round(value, 4) for key, value in measured.items()}, to)


def tell_json(found: Any, to: Path | None) -> None:
    if to == _LAST_LINE:
        print(json.dumps(found))
    elif to is not None:
        to.write_text(json.dumps(found) + "\n", encoding="utf-8")
