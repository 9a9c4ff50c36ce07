"""The budget of a process for state that can be on disk: bytes in memory, and a directory for the rest."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from itertools import count
from pathlib import Path

from primitives.state.budget import MemoryBudget

#: Bytes of such state in memory, unless the settings say otherwise.
DEFAULT_MEMORY = 1 << 30


class StateBudget:
    """Shared by all instances of a node: an instance holds `lock` while it uses its spilling containers.

    >>> room = StateBudget()
    >>> place = room.place("counter", "totals")
    >>> place.name, place.parent.is_dir()
    ('counter-totals-0', True)
    >>> room.close()
    """

    def __init__(self, memory: int = DEFAULT_MEMORY, directory: Path | None = None) -> None:
        self.memory = memory
        self.budget = MemoryBudget(memory)
        self.lock = threading.RLock()
        self._directory = directory
        self._serials = count()
        self._finally: Callable[[], object] = lambda: None

    def place(self, operator: str, state: str) -> Path:
        """Returns the path of a directory for one container of an operator only; it may not exist yet."""
        return self._root() / f"{operator}-{state}-{next(self._serials)}"

    def _root(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="seep-state-"))
            self._finally = weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        return self._directory

    def close(self) -> None:
        """Deletes its directory, if it was a temporary one."""
        self._finally()
