"""Orders: the commands of one step, and who is told when one of them is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from primitives.event import Event
from seep.control.commands import Command, Tell
from seep.record.facts import Answer, Facts

#: Told of an answer, with the facts at that time.
Then = Callable[[Facts, Any], None]


@dataclass(slots=True)
class Orders:
    """Collects commands. Each that asks for something has a number of its own, and is answered at most once."""

    _commands: list[Command] = field(default_factory=list)
    _waiting: dict[int, Then] = field(default_factory=dict)
    _asked: int = 0

    def give(self, command: Command) -> None:
        self._commands.append(command)

    def tell(self, event: Event) -> None:
        self.give(Tell(event))

    def request(self, command: Callable[[int], Command], then: Then) -> int:
        """Gives the command that is made with a fresh number; `then` is told of its answer."""
        self._asked += 1
        self._waiting[self._asked] = then
        self.give(command(self._asked))
        return self._asked

    def forget(self, number: int) -> None:
        """Drops the answer to a command when it comes."""
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
