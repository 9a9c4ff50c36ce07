"""Compares outputs with the reference as multisets without Emit, and checks response times separately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lrb.data.history import read_history
from lrb.data.lines import WELL, parse
from lrb.data.reading import DeadLetters, read
from lrb.data.writing import OUTPUTS, Output
from lrb.schema import HISTORY, INPUT, TupleKind
from lrb.validation import reference
from lrb.validation.reference import Answers, Tuple
from primitives.errors import UserError

#: An output line without its type.
Line = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """The comparison of one output with the reference; lines are without their Emit."""

    output: Output
    expected: int
    found: int
    malformed: int  #: number of malformed lines
    missing: Counter[Line]
    unexpected: Counter[Line]
    longest: int  #: longest response time in seconds
    late: int  #: number of answers beyond the time limit, or before the question

    @property
    def is_right(self) -> bool:
        return not (self.malformed or self.missing or self.unexpected or self.late)


def validate(
    input: Path,
    out: Path,
    history: Path | None = None,
    *,
    lateness: int = 0,
    live: bool = False,
    dead_letters: DeadLetters | None = None,
) -> list[OutputComparison]:
    """Returns a finding for each of the four outputs.

    Tuples that a run had to leave out are left out here as well. In a live run, a balance may be up to 60 s old.
    """
    return compared(expected(input, history, lateness, dead_letters), out, live=live)


def compared(expected: Answers, out: Path, *, live: bool = False) -> list[OutputComparison]:
    """Returns a finding for each of the four outputs, given the right answers."""
    answers: list[Sequence[Line]] = [expected.tolls, expected.alerts, expected.balances, expected.expenditures]
    found = [_found(out / output.file, output) for output in OUTPUTS]
    return [
        _compared(output, right, lines, expected if live else None)
        for output, right, lines in zip(OUTPUTS, answers, found, strict=True)
    ]


# --- right answers ----------------------------------------------------------------------------------------------------


def expected(
    input: Path, history: Path | None = None, lateness: int = 0, dead_letters: DeadLetters | None = None
) -> Answers:
    """Returns the reference's answers to the well-formed tuples of a file."""
    dead_letters = dead_letters or DeadLetters()
    with dead_letters:
        table = pa.Table.from_batches(read(input, dead_letters, lateness=lateness), INPUT)
    if lateness:
        table = table.sort_by("time")
    tolls = reference.default_history if history is None else _stored(history, table)
    return reference.answers(_tuples(table), tolls)


def _tuples(table: pa.Table) -> Iterator[Tuple]:
    for batch in table.to_batches(max_chunksize=1 << 14):
        yield from map(Tuple._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _stored(history: Path, table: pa.Table) -> reference.History:
    queries = table.filter(pc.equal(table["type"], TupleKind.EXPENDITURE)).select(["vid", "day", "xway"])
    asked = set(zip(*(column.to_pylist() for column in queries.columns), strict=True))
    return reference.history_of(_rows(read_history(history).select(HISTORY.names)), asked)


def _rows(table: pa.Table) -> Iterator[tuple[int, int, int, int]]:
    for batch in table.to_batches(max_chunksize=1 << 14):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


# --- answers of the run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lines:
    well: list[Line]
    malformed: int


def _found(path: Path, output: Output) -> _Lines:
    if not path.is_file():
        raise UserError(f"there is no {path}; --out names the directory of the outputs of a run")
    numbers, found, _ = parse(path.read_bytes(), 1 + len(output.printed))
    well = (found == WELL) & (numbers[0] == output.kind)
    return _Lines(list(zip(*(column[well].tolist() for column in numbers[1:]), strict=True)), int((~well).sum()))


def _compared(output: Output, right: Sequence[Line], found: _Lines, live: Answers | None) -> OutputComparison:
    time, emit = output.printed.index("time"), output.printed.index("emit")
    taken = [line[emit] - line[time] for line in found.well]
    lines = found.well if live is None or output.kind != TupleKind.BALANCE else _fresh(found.well, live)
    expected, there = Counter(_without(emit, right)), Counter(_without(emit, lines))
    return OutputComparison(
        output,
        expected=len(right),
        found=len(found.well),
        malformed=found.malformed,
        missing=expected - there,
        unexpected=there - expected,
        longest=max(taken, default=0),
        late=sum(not 0 <= seconds <= output.limit for seconds in taken),
    )


def _without(column: int, lines: Iterable[Line]) -> Iterator[Line]:
    return (line[:column] + line[column + 1 :] for line in lines)


def _fresh(lines: Sequence[Line], live: Answers) -> list[Line]:
    """Replaces balances that are allowed but not fresh by the fresh ones."""
    fresh = {balance.qid: balance for balance in live.balances}
    return [fresh[line[3]] if _is_tolerated(reference.Balance(*line), live) else line for line in lines]


def _is_tolerated(balance: reference.Balance, live: Answers) -> bool:
    return (balance.result_time, balance.balance) in live.tolerated.get(balance.qid, ())
