"""Chaos: fault injection, and changes of a run, from a schedule in text; a thread carries them out at their times."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from formats.durations import micros
from policies.migration.settings import Strategy
from primitives.errors import UserError
from seep.control.targets import Target, passed_on
from seep.record.events import NodeContinued, NodeStopped, StrikeFailed
from seep.record.log import EventLog

_EXAMPLE = "write act:target@time, such as 'kill:counter@5s', 'kill:counter[0]+splitter[0]@10s' or 'scale:counter=3@1m'"
_STRIKE = re.compile(r"(?P<act>[a-z]+):(?P<targets>[^@]+)@(?P<at>.+)")
_OPERATOR = r"(?P<operator>[A-Za-z0-9_][A-Za-z0-9_.-]*)"
#: The syntax of targets, unless an act has another one; and the end of the error for a wrong target.
_OF_NODES = (
    re.compile(rf"{_OPERATOR}(\[(?P<index>\d+)\])?"),
    f"neither an operator nor an instance; {_EXAMPLE}",
)


class StrikeKind(StrEnum):
    """An act: on the nodes of a target, or on the slots of an operator."""

    KILL = "kill"  #: `kill -9`
    STOP = "stop"  #: SIGSTOP: the process is alive, but silent
    CONT = "cont"  #: SIGCONT: stopped processes continue
    SCALE = "scale"  #: `counter=3`: scales to this number of instances
    MIGRATE = "migrate"  #: `counter=batched`: every slot to another owner; `counter=fluid->3`: to 3 instances
    HANDOVER = "handover"  #: all slots of one instance to a new one, on a fresh node
    BALANCE = "balance"  #: the operator's balancer moves slots


_SYNTAX: Mapping[StrikeKind, tuple[re.Pattern[str], str]] = {
    StrikeKind.SCALE: (re.compile(rf"{_OPERATOR}=(?P<to>[1-9]\d*)"), "not a number of instances; write counter=3"),
    StrikeKind.MIGRATE: (
        re.compile(rf"{_OPERATOR}=(?P<strategy>{'|'.join(Strategy)})(->(?P<to>[1-9]\d*))?"),
        f"not a strategy ({', '.join(Strategy)}); write counter=batched, or counter=fluid->3",
    ),
    StrikeKind.BALANCE: (re.compile(_OPERATOR), "not an operator; write balance:counter@5s"),
}

#: Acts after which an operator may have other instances than at the start.
_CHANGING = (StrikeKind.SCALE, StrikeKind.MIGRATE, StrikeKind.HANDOVER)


@dataclass(frozen=True, slots=True)
class Strike:
    """An act on one or several targets at once: operators (`counter`: all instances) or instances (`counter[0]`)."""

    act: StrikeKind
    targets: tuple[str, ...]
    at: float  #: seconds after the start of the query

    def __str__(self) -> str:
        return f"{self.act}:{'+'.join(self.targets)}@{self.at:g}s"


class ChaosTarget(Protocol):
    """The part of a run that chaos needs."""

    @property
    def events(self) -> EventLog: ...

    @property
    def placement(self) -> Mapping[str, str]:
        """Maps instances to nodes."""
        ...

    def kill(self, target: str) -> None: ...

    def signal(self, node: str, number: int) -> None: ...

    def scale(self, operator: str, parallelism: int) -> None: ...

    def migrate(self, operator: str, target: Target, strategy: str) -> object: ...

    def handover(self, instance: str) -> object: ...


@runtime_checkable
class BalancedRun(Protocol):
    """A run that can balance an operator."""

    def balance(self, operator: str) -> object: ...


def parse_chaos(text: str) -> tuple[Strike, ...]:
    """Parses strikes, sorted by time; raises UserError that names a wrong part.

    >>> [str(strike) for strike in parse_chaos("kill:counter[0]+splitter[0]@1500ms, kill:counter@1s")]
    ['kill:counter@1s', 'kill:counter[0]+splitter[0]@1.5s']
    """
    strikes = sorted((_parse_strike(part.strip()) for part in text.split(",")), key=lambda strike: strike.at)
    stopped: set[str] = set()
    for strike in strikes:
        if strike.act is StrikeKind.CONT and (missing := set(strike.targets) - stopped):
            raise UserError(f"chaos {str(strike)!r}: {min(missing)} is not stopped by then; stop it first")
        stopped |= set(strike.targets) if strike.act is StrikeKind.STOP else set()
    return tuple(strikes)


def _parse_strike(part: str) -> Strike:
    read = _STRIKE.fullmatch(part)
    if read is None:
        raise UserError(f"chaos {part!r} does not read as a strike; {_EXAMPLE}")
    if read["act"] not in list(StrikeKind):
        raise UserError(f"chaos {part!r}: {read['act']!r} is not an act; choose from {', '.join(StrikeKind)}")
    act, targets = StrikeKind(read["act"]), tuple(target.strip() for target in read["targets"].split("+"))
    for target in targets:
        pattern, words = _SYNTAX.get(act, _OF_NODES)
        if not pattern.fullmatch(target):
            raise UserError(f"chaos {part!r}: {target!r} is {words}")
    return Strike(act, targets, _seconds(part, read["at"]))


def _read(act: StrikeKind, target: str) -> re.Match[str] | None:
    return _SYNTAX.get(act, _OF_NODES)[0].fullmatch(target)


def _seconds(part: str, at: str) -> float:
    try:
        seconds = micros(at) / 1e6
    except UserError as reason:
        raise UserError(f"chaos {part!r}: {reason}") from None
    if seconds < 0:
        raise UserError(f"chaos {part!r}: {at} is before the query begins to run; {_EXAMPLE}")
    return seconds


def check_chaos(strikes: Sequence[Strike], parallelism: Mapping[str, int], seconds: float | None) -> None:
    """Raises UserError for a target that the query does not have, or a time after the end of the input.

    >>> check_chaos(parse_chaos("kill:counter[2]@5s"), {"counter": 2}, None)
    Traceback (most recent call last):
    ...
    primitives.errors.UserError: chaos 'kill:counter[2]@5s': counter has 2 instances, counter[0] to counter[1]
    """
    changed: set[str] = set()  # operators that may have other instances at that time
    for strike in strikes:
        for target in strike.targets:
            operator = _check_target(strike, target, parallelism, changed)
            changed |= {operator} if strike.act in _CHANGING else set()
        if seconds is not None and strike.at >= seconds:
            raise UserError(f"chaos {str(strike)!r} comes too late: the input ends after {seconds:g} s; see --seconds")


def _check_target(strike: Strike, target: str, parallelism: Mapping[str, int], changed: Container[str]) -> str:
    """Returns the operator of a target; raises UserError if the query does not have it."""
    read = _read(strike.act, target)
    said = read.groupdict() if read else {}
    operator, index = said.get("operator", target), said.get("index")
    if operator not in parallelism:
        known = ", ".join(parallelism)
        raise UserError(f"chaos {str(strike)!r}: the query has no operator {operator!r}; it has {known}")
    instances = parallelism[operator]
    if index is not None and int(index) >= instances and operator not in changed:
        which = f"{operator}[0] to {operator}[{instances - 1}]" if instances > 1 else f"only {operator}[0]"
        count = f"{instances} instance{'s' if instances > 1 else ''}"
        raise UserError(f"chaos {str(strike)!r}: {operator} has {count}, {which}")
    return operator


class Chaos:
    """Carries out strikes on a run while the context is open; times count from its opening."""

    def __init__(self, run: ChaosTarget, strikes: Sequence[Strike]) -> None:
        self._run = run
        #: strikes that have not been carried out yet, by time
        self.pending = sorted(strikes, key=lambda strike: strike.at)
        #: target -> the nodes that were stopped for it
        self._stopped: dict[str, list[str]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry_out, name="seep chaos", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _carry_out(self) -> None:
        begin = time.monotonic()
        while self.pending:
            if self._over.wait(max(0.0, begin + self.pending[0].at - time.monotonic())):
                return
            strike = self.pending.pop(0)
            for target in strike.targets:
                self._strike(strike, target)

    def _strike(self, strike: Strike, target: str) -> None:
        """Carries out a strike; if its target does not exist any more, an event says so, and the run continues."""
        try:
            match strike.act:
                case StrikeKind.KILL:
                    self._run.kill(target)
                case StrikeKind.STOP:
                    self._stopped[target] = self._nodes_of(target)
                    self._signal(NodeStopped, self._stopped[target], signal.SIGSTOP)
                case StrikeKind.CONT:
                    self._signal(NodeContinued, self._stopped.pop(target, []), signal.SIGCONT)
                case _:
                    self._change(strike.act, target)
        except (UserError, ProcessLookupError) as reason:
            self._run.events.add(StrikeFailed(strike=str(strike), why=str(reason)))

    def _change(self, act: StrikeKind, target: str) -> None:
        read = _read(act, target)
        assert read is not None, "it was read when it was parsed"
        operator = read["operator"]
        match act:
            case StrikeKind.SCALE:
                self._run.scale(operator, int(read["to"]))
            case StrikeKind.MIGRATE:
                goal = int(read["to"]) if read["to"] else passed_on(operator)
                self._run.migrate(operator, goal, read["strategy"])
            case StrikeKind.HANDOVER:
                self._run.handover(target)
            case StrikeKind.BALANCE if isinstance(self._run, BalancedRun):
                self._run.balance(operator)
            case StrikeKind.BALANCE:
                raise UserError("this run cannot balance its operators")

    def _nodes_of(self, target: str) -> list[str]:
        placed = self._run.placement.items()
        return list(dict.fromkeys(node for i, node in placed if target in (i, i.partition("[")[0])))

    def _signal(self, told: type[NodeStopped | NodeContinued], nodes: Sequence[str], number: signal.Signals) -> None:
        for node in nodes:
            self._run.events.add(told(node=node))
            self._run.signal(node, number)
