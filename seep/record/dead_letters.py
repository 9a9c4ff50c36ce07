"""Samples of the dead letters of a run: the newest rows on which users' functions have failed."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seep.record.reports import InstanceFigures

#: The number of dead letters that are kept.
_KEPT = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A row that became a dead letter; its texts are cut."""

    operator: str
    instance: str
    at: float  #: seconds of the run
    epoch: int
    function: str  #: the name of the user's function; empty if it is not known
    error: str
    row: str  #: the row as JSON

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class LetterSamples:
    """The newest dead letters of a run. Not thread-safe."""

    _letters: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def note(self, figures: InstanceFigures, now: float) -> None:
        """Adds the letters of an instance, but not those that another incarnation has told before a replay."""
        who = figures.identity.instance
        for each in figures.letters:
            letter = DeadLetter(who.operator, str(who), now - each.age, each.epoch, each.function, each.error, each.row)
            if not any(_is_same(letter, known) for known in self._letters):
                self._letters.append(letter)

    def newest(self, operator: str | None) -> tuple[DeadLetter, ...]:
        """Returns the letters of one operator, or of all, oldest first."""
        return tuple(each for each in self._letters if operator in (None, each.operator))


def _is_same(letter: DeadLetter, known: DeadLetter) -> bool:
    """Whether both are of the same row; after a scaling, a replay may be by another instance."""
    return letter == replace(known, at=letter.at, instance=letter.instance)
