"""Reports: regular data of nodes about themselves and the instances that they host.

Counters only grow, and are repeated in each report; data that is reported once is marked. An invalid report is refused
as a whole, before any of it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.graph import QueryGraph
from seep.protocol.view import Incarnation


class MalformedReport(EnvironmentFault):
    """A node has sent an impossible report."""


#: The most dead letters of an instance in a report, and the most characters of each text of a dead letter.
MOST_LETTERS, LETTER_TEXT = 5, 500


class LetterSample(NamedTuple):
    """A row on which a user's function has failed, and which became a dead letter; its texts are cut."""

    epoch: int
    function: str  #: the name of the user's function; empty if it is not known
    error: str
    row: str  #: the row as JSON
    age: float = 0.0  #: seconds from the failure to the report


class HandedPart(NamedTuple):
    """A handover to an instance at an epoch, or a part of one."""

    epoch: int
    nbytes: int = 0  #: handed over between two epochs
    nbytes_ahead: int = 0  #: bytes of prefetched backups
    held_back: int = 0  #: rows that waited for it


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRows:
    """Rows by slot that an instance has counted since its last report; each row is reported once.

    >>> told = SlotRows.of(np.array([0, 0, 3, 500, 0]))
    >>> told.first, told.type, told.rows
    (2, 'uint16', b'\\x03\\x00\\xf4\\x01')
    >>> told.counts.tolist()
    [3, 500]
    """

    first: int  #: the first slot in the counts
    type: str  #: NumPy type of the counts
    rows: bytes
    cpu: float = 0.0  #: seconds that the operator was at work for them
    seconds: float = 0.0  #: seconds in which they were counted
    epochs: int = 0  #: epochs in which they were counted
    #: of the slot with the most rows: the slot, its heaviest key as text, and the key's share of the slot's rows
    heaviest: tuple[int, str, float] | None = None

    @classmethod
    def of(
        cls,
        rows: NDArray[np.generic],
        cpu: float = 0.0,
        seconds: float = 0.0,
        epochs: int = 0,
        heaviest: tuple[int, str, float] | None = None,
    ) -> SlotRows:
        """Encodes whole numbers, one per slot, in a compact form."""
        (used,) = np.nonzero(rows)
        first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        kind = np.min_scalar_type(int(rows[first:end].max(initial=0)))
        packed = rows[first:end].astype(kind.newbyteorder("<")).tobytes()
        return cls(first=first, type=kind.name, rows=packed, cpu=cpu, seconds=seconds, epochs=epochs, heaviest=heaviest)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The counts, beginning with the first slot."""
        return np.frombuffer(self.rows, np.dtype(self.type).newbyteorder("<")).astype(np.int64)

    def objection(self, slots: int) -> str | None:
        """Returns what is wrong with the counts for an operator with `slots` slots, or None."""
        try:
            counts = self.counts
        except (TypeError, ValueError) as reason:
            return f"its rows by slot cannot be read: {reason}"
        if self.first < 0 or self.first + len(counts) > slots:
            return f"it has rows of slots {self.first} to {self.first + len(counts) - 1}, and there are {slots}"
        if self.heaviest is not None and not 0 <= self.heaviest[0] < slots:
            return f"its heaviest key is in slot {self.heaviest[0]}, and there are {slots}"
        return "it has rows of no epoch" if self.epochs < 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFigures:
    """The figures of one instance in its node's report."""

    identity: Incarnation
    phase: str
    epoch: int  #: the last processed epoch
    counted: int  #: its counters include no epoch after this one
    rows_in: int = 0
    rows_out: int = 0
    cpu: float = 0.0  #: seconds of its thread
    busy: float = 0.0  #: seconds that its thread was at work, on the CPU or waiting for something outside
    stolen: float = 0.0  #: seconds that its thread was ready and had no core
    waiting: int = 0  #: messages in its mailbox
    unsent: int = 0  #: epochs of output that its slowest receiver has not fetched yet
    outbox_bytes: int = 0
    state_bytes: int = 0
    watermark: int | None = None  #: watermark of the last epoch in its output, in the unit of the event time
    age: float = 0.0  #: seconds from the creation of that epoch's oldest row until the output; 0 if that is not known
    edges: Mapping[str, int] = field(default_factory=dict)  #: rows sent on each edge
    counters: Mapping[str, int] = field(default_factory=dict)  #: the operator's counters: late rows, dead letters, …
    #: seconds from the creation of an epoch's oldest row to the epoch's commit; reported once
    latencies: tuple[float, ...] = ()
    handed: tuple[HandedPart, ...] = ()  #: reported once
    slots: SlotRows | None = None
    letters: tuple[LetterSample, ...] = ()  #: the newest dead letters; each is reported once


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources that a node's process has used so far; 0 if the operating system does not report them."""

    rss: int = 0  #: bytes of memory that it has now
    read: int = 0  #: bytes from disks
    written: int = 0  #: bytes to disks
    received: int = 0  #: bytes, of the whole machine, from other machines
    sent: int = 0  #: bytes, of the whole machine, to other machines


class BulkTransfer(NamedTuple):
    """State that a node is sending to another, whose arrival is not known yet."""

    peer: str
    kind: str  #: its purpose: backup, restore, handover, warm-up or inspection
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report of a node, with the figures of all instances that it hosts."""

    at: float  #: seconds by the node's own clock
    cpu: float  #: CPU seconds that the process has used within its share
    cores: float  #: number of cores that it may use
    memory: int | None = None  #: bytes that it may use; None if not limited
    resources: Resources = field(default_factory=Resources)
    instances: tuple[InstanceFigures, ...] = ()
    transfers: tuple[BulkTransfer, ...] = ()  #: transfers by peer and kind

    @property
    def kept(self) -> int:
        """Bytes of processing state and buffer state: a split takes these away, unlike the rest of the memory."""
        return sum(each.state_bytes + each.outbox_bytes for each in self.instances)


def check_report(report: object, graph: QueryGraph) -> NodeReport:
    """Checks and returns a report. Raises MalformedReport if it is none, or has names that the query lacks."""
    if not isinstance(report, NodeReport):
        raise MalformedReport(f"a report is a NodeReport, and not a {type(report).__name__}")
    for figures in report.instances:
        check_figures(figures, graph)
    if report.cores <= 0:
        raise MalformedReport(f"a report tells of {report.cores} cores; there must be more than 0")
    return report


def check_figures(figures: object, graph: QueryGraph) -> InstanceFigures:
    """Checks and returns figures. Raises MalformedReport if they are none, or have names that the query lacks."""
    if not isinstance(figures, InstanceFigures):
        raise MalformedReport(f"an instance is told of by InstanceFigures, and not by a {type(figures).__name__}")
    for objection in _objections(figures, graph):
        raise MalformedReport(f"what is told of {figures.identity} makes no sense: {objection}")
    return figures


def _objections(figures: InstanceFigures, graph: QueryGraph) -> Iterator[str]:
    operator = graph.operators.get(figures.identity.instance.operator)
    if operator is None:
        yield f"there is no operator {figures.identity.instance.operator!r}"
    elif figures.slots is not None and (objection := figures.slots.objection(1 << operator.slot_bits)):
        yield objection
    if any(not latency >= 0 for latency in figures.latencies):
        yield f"a latency of {min(figures.latencies)} s"
    if not all(np.isfinite(figures.latencies)):
        yield "a latency that is not finite"
    yield from _objections_to_letters(figures.letters)


def _objections_to_letters(letters: tuple[LetterSample, ...]) -> Iterator[str]:
    if len(letters) > MOST_LETTERS:
        yield f"{len(letters)} dead letters; at most {MOST_LETTERS} are samples"
    if any(len(text) > LETTER_TEXT for each in letters for text in (each.function, each.error, each.row)):
        yield f"a dead letter with a text of more than {LETTER_TEXT} characters"
    if any(not 0 <= each.age < np.inf for each in letters):
        yield "a dead letter whose age is no number of seconds"
