"""Processes at one store that take turns in a given order, one call of the store at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from seep.storage.store import BlobStore

#: Chooses one of so many.
Choose = Callable[[int], int]


class Turns:
    """Runs functions side by side, each in a thread, of which one at a time goes on: whichever `choose` says.

    Most races need few switches at the right moments, so it goes on with the same one for a while, of random length.
    """

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self._patience = 1 + choose(20)
        self._names = threading.local()
        self._waiting: dict[int, threading.Event] = {}
        self._back = threading.Semaphore(0)
        self._errors: list[BaseException] = []

    def run(self, functions: Sequence[Callable[[], object]]) -> None:
        """Returns when all have; raises what one of them has raised."""
        threads = [threading.Thread(target=self._one, args=each) for each in enumerate(functions)]
        for thread in threads:
            thread.start()
            self._back.acquire()
        current = 0
        while self._waiting:
            if current not in self._waiting or not self.choose(self._patience):
                ready = sorted(self._waiting)
                current = ready[self.choose(len(ready))]
            self._waiting.pop(current).set()
            self._back.acquire()
        for thread in threads:
            thread.join()
        for error in self._errors:
            raise error

    def wait(self) -> None:
        """Called by a function: others may go on now, until it is its turn again."""
        turn = threading.Event()
        self._waiting[self._names.own] = turn
        self._back.release()
        turn.wait()

    def _one(self, name: int, function: Callable[[], object]) -> None:
        self._names.own = name
        try:
            self.wait()
            function()
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._back.release()


class TurnStore:
    """Implements `seep.storage.store.BlobStore` on another one; before each call others may have their turns.

    A listing takes two turns, and of what comes or goes between them it may have any part.
    """

    def __init__(self, inner: BlobStore, turns: Turns) -> None:
        self._inner, self._turns = inner, turns
        self.name = inner.name

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        self._turns.wait()
        return self._inner.put(key, parts, new=new)

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self._turns.wait()
        return self._inner.get(key, start, length)

    def open(self, key: str) -> BinaryIO:
        self._turns.wait()
        return self._inner.open(key)

    def size(self, key: str) -> int:
        self._turns.wait()
        return self._inner.size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        self._turns.wait()
        before = set(self._inner.list(prefix))
        self._turns.wait()
        after = set(self._inner.list(prefix))
        return iter(sorted(key for key in before | after if key in before & after or self._turns.choose(2)))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._turns.wait()
            self._inner.delete([key])

    def close(self) -> None:
        self._inner.close()
