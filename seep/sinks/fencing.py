"""Fencing on a file system: an incarnation owns a directory, and whoever removes the directory has fenced it.

What an incarnation makes visible it first writes into its own directory, and then moves out of it by a rename. So what
it can still do depends on that directory alone:

- An incarnation makes its directory first, and looks for others then. Of two that do this at the same time, the one
  that looks last sees the other's directory: either the later one removes that of the earlier one, or the earlier one
  sees the later one and gives up. A directory of the latest incarnation stays, so one that was given up long ago and
  opens only now finds it.
- A later incarnation fences an earlier one by emptying and removing its directory. The files go first and the
  directory last, as removal succeeds only if it is empty: if the other has just made a file, it is emptied again. In a
  removed directory nothing can be made, and nothing can be moved out of it, even by a call that had found the
  directory before (a rename aside would leave that gap). So after the removal everything that the earlier incarnation
  has made visible is visible, and nothing will be added: that is the moment to look how far it came.
- The earlier one finds its files or its directory missing at its next step, and so learns that it is fenced. It never
  makes its directory anew.

This needs what POSIX says of mkdir, rename, unlink and rmdir, on one file system, which may be a shared one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from primitives.errors import InternalError


def enter(home: Path, number: int) -> Path | None:
    """The directory of incarnation `number`, after all earlier ones are fenced; None if there is a later one."""
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
    """Where an incarnation writes."""
    return home / f"{number:010d}"


def incarnations(home: Path) -> set[int]:
    """Those that have opened and are not fenced."""
    return {int(entry.name) for entry in home.iterdir() if entry.name.isdigit()}


def remove(directory: Path) -> None:
    """Empties a directory and removes it, whatever is added meanwhile; no matter if somebody else does it as well."""
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
