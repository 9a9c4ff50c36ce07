"""Writes the snapshots of today, for `make snapshots`; git diff shows what has changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.snapshots import commands, errors, stored

#: File -> what is in it, given an empty directory to work in.
SNAPSHOTS: Mapping[str, Callable[[Path], dict[str, str]]] = {
    "help.txt": lambda _: commands.helps(),
    "commands.txt": commands.outputs,
    "errors.txt": lambda place: dict(errors.texts(place)),
}


def main() -> None:
    for name, sections in SNAPSHOTS.items():
        with tempfile.TemporaryDirectory() as place:
            stored.write(name, sections(Path(place)))


if __name__ == "__main__":
    main()
