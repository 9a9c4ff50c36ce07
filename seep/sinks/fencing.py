"""Fencing on a file system: an incarnation owns a directory, and is fenced when that directory is removed.

An incarnation writes every file into its own directory first, and makes it visible by a rename out of that directory.
So what it can still do depends on that directory alone:

- An incarnation makes its directory first, and then looks for others. Of two that do this at the same time, the one
  that looks last sees the other's directory: either the later incarnation removes the directory of the earlier one, or
  the earlier one sees the later one and gives up. The directory of the latest incarnation stays, so that an earlier one
  that opens much later finds it.
- A later incarnation fences an earlier one by emptying and removing its directory. It removes the files first and the
  directory last, because removal succeeds only if the directory is empty: if the other has just made a file, it is
  emptied again. No file can be made in a removed directory, or moved out of it, even by a call that had opened the
  directory before (renaming the directory would leave that gap). So after the removal, nothing is added to what the
  earlier incarnation has made visible, and the later one can read how far it came.
- The earlier incarnation finds its files or its directory missing at its next step, and so learns that it is fenced. It
  never makes its directory again.

This relies on the POSIX semantics of mkdir, rename, unlink and rmdir, on one file system, which may be a shared one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from primitives.errors import InternalError


def enter(home: Path, number: int) -> Path | None:
    """Fences all earlier incarnations; returns the directory of incarnation `number`, None if there is a later one."""
    mine = own_directory(home, number)
    home.mkdir(parents=True, exist_ok=True)
    try:
        mine.mkdir()
    except FileExistsError:
        raise InternalError(f"{mine} is there already: an incarnation opens its store once") from None
    others = incarnations(home) - {number}
    if any(other > number for other in others):
        remove(mine)
        return None
    for other in sorted(others):
        remove(own_directory(home, other))
    return mine


def own_directory(home: Path, number: int) -> Path:
    """Returns the directory of an incarnation."""
    return home / f"{number:010d}"


def incarnations(home: Path) -> set[int]:
    """Returns the incarnations that have opened and are not fenced."""
    return {int(entry.name) for entry in home.iterdir() if entry.name.isdigit()}


def remove(directory: Path) -> None:
    """Empties a directory and removes it, even if files are added meanwhile, or another process removes it too."""
    while True:
        try:
            for entry in os.scandir(directory):
                if entry.is_dir(follow_symlinks=False):
                    remove(Path(entry.path))
                else:
                    Path(entry.path).unlink(missing_ok=True)
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
