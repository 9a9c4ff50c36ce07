"""Orders: the commands of one step, and the callbacks for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from primitives.event import Event
from seep.control.commands import Command, Tell
from seep.record.facts import Answer, Facts

#: Called with an answer, and the facts at that time.
Then = Callable[[Facts, Any], None]


@dataclass(slots=True)
class Orders:
    """Collects commands. Each one that wants an answer has its own number, and is answered at most once."""

    _commands: list[Command] = field(default_factory=list)
    _waiting: dict[int, Then] = field(default_factory=dict)
    _asked: int = 0

    def give(self, command: Command) -> None:
        self._commands.append(command)

    def tell(self, event: Event) -> None:
        self.give(Tell(event))

    def request(self, command: Callable[[int], Command], then: Then) -> int:
        """Gives a command, which is made with a new number; `then` is called with its answer."""
        self._asked += 1
        self._waiting[self._asked] = then
        self.give(command(self._asked))
        return self._asked

    def forget(self, number: int) -> None:
        """Ignores the answer to a command."""
        self._waiting.pop(number, None)

    def answered(self, answers: Iterable[Answer], facts: Facts) -> None:
        for answer in answers:
            then = self._waiting.pop(answer.number, None)
            if then is not None:
                then(facts, answer.value)

    def taken(self) -> list[Command]:
        """Returns the commands that were given since the last call."""
        taken, self._commands = self._commands, []
        return taken
