"""Exceptions in user code: finds the rows at fault, which stop the run or become dead letters."""

from __future__ import annotations

import json
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from primitives.errors import SeepError, UserError, encodable
from seep.operators.definition import OperatorSetting
from seep.record.reports import LETTER_TEXT, MOST_LETTERS, LetterSample

Result = TypeVar("Result")
Row = Mapping[str, Any]

#: The columns of dead letters; `row` is the whole row as JSON, with values that JSON does not know as text.
DEAD_LETTERS = pa.schema(
    [("operator", pa.string()), ("epoch", pa.int64()), ("error", pa.string()), ("row", pa.string())]
)

#: The number of rows at fault that an error shows.
_SAMPLE = 5

#: The directory of this package: lines in it are not user code.
_PROJECT = Path(__file__).parent


class UserCodeFailed(UserError):
    """A user's function raised: names the operator and the epoch, and shows a few of the rows at fault.

    >>> failure = UserCodeFailed("ratio", 7, [{"n": 1, "d": 0}], "ZeroDivisionError: division by zero")
    >>> print(failure)
    operator 'ratio' failed in epoch 7: ZeroDivisionError: division by zero; on rows like {"n": 1, "d": 0}
    >>> str(UserCodeFailed.from_json(failure.to_json())) == str(failure)
    True
    """

    def __init__(self, operator: str, epoch: int, rows: Sequence[Row], cause: str, instance: str | None = None) -> None:
        self.operator = operator
        self.epoch = epoch
        self.rows = [dict(row) for row in rows[:_SAMPLE]]
        self.cause = cause
        self.instance = instance  #: the instance that ran it; set by the runtime, as operators do not know it
        super().__init__(operator, epoch, self.rows, cause)

    def __str__(self) -> str:
        where = f"instance {self.instance}" if self.instance else f"operator '{self.operator}'"
        rows = f"; on rows like {', '.join(map(row_as_json, self.rows))}" if self.rows else ""
        return f"{where} failed in epoch {self.epoch}: {self.cause}{rows}"

    def to_json(self) -> str:
        """Returns the error as text for `from_json`; values in its rows that JSON does not know remain text."""
        fields = {name: getattr(self, name) for name in ("operator", "epoch", "rows", "cause", "instance")}
        return json.dumps(_plain(fields))

    @classmethod
    def from_json(cls, text: str) -> UserCodeFailed:
        """Returns the error that `to_json` wrote."""
        return cls(**json.loads(text))


def row_as_json(row: Row) -> str:
    """Returns a row as a line of JSON; values that JSON does not know become text.

    >>> row_as_json({"at": pa.scalar(0, pa.timestamp("s")).as_py(), "x": float("nan"), "tags": [b"a"]})
    '{"at": "1970-01-01 00:00:00", "x": "nan", "tags": ["b\\'a\\'"]}'
    """
    return encodable(json.dumps(_plain(row), ensure_ascii=False))


def _plain(value: Any) -> Any:
    """Returns the value, with everything in it that JSON does not know as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


@contextmanager
def naming(operator: str) -> Iterator[None]:
    """Adds the operator's name to a UserError from within that does not name it.

    >>> with naming("counter"):
    ...     raise UserError("column 'n' is missing")
    Traceback (most recent call last):
    ...
    primitives.errors.UserError: operator 'counter': column 'n' is missing
    """
    try:
        yield
    except UserError as error:
        if type(error) is not UserError or f"'{operator}'" in str(error):
            raise
        raise UserError(f"operator '{operator}': {error}") from error


class Guard:
    """Calls the user code of one instance. Without an edge for dead letters, the first failure stops the run.

    Errors of the project itself are not caught: a UserError means that the query is wrong, not a row. `samples` is for
    another thread.
    """

    def __init__(self, setting: OperatorSetting, clock: Callable[[], float] = time.monotonic) -> None:
        self._operator = setting.operator
        self._keeps_letters = setting.dead_letters is not None
        self._clock = clock
        self._letters: list[dict[str, Any]] = []
        #: the errors of the newest of these letters
        self._errors = deque[Exception](maxlen=MOST_LETTERS)
        #: the newest letters that were taken, and not yet as samples; with the times of `take` as their ages
        self._samples = deque[LetterSample](maxlen=MOST_LETTERS)
        self.failed = 0  #: total of rows that became dead letters

    def call(self, epoch: int, function: Callable[[pa.RecordBatch], Result], batch: pa.RecordBatch) -> Result | None:
        """Returns the function's result for a batch, without the rows on which it raises; None if no row is left.

        The function must be pure, as it is called again with parts of the batch: about 2 * log2(rows) times for each
        row at fault. If several rows fail only together, all of them are at fault.
        """
        while True:
            try:
                return function(batch)
            except SeepError:
                raise
            except Exception as error:
                good = self._without_bad_rows(epoch, function, batch, error)
            if not good.num_rows:
                return None
            batch = good

    def fail(self, epoch: int, error: Exception, row: Row) -> None:
        """Makes a row a dead letter; raises UserCodeFailed if there is no edge for dead letters."""
        if not self._keeps_letters:
            raise UserCodeFailed(self._operator, epoch, [row], describe(error)) from error
        self.failed += 1
        self._errors.append(error)
        self._letters.append(
            {"operator": self._operator, "epoch": epoch, "error": _headline(error), "row": row_as_json(row)}
        )

    def take(self) -> pa.RecordBatch:
        """Returns the dead letters since the last call, as rows of `DEAD_LETTERS`."""
        letters, self._letters = self._letters, []
        self._sample(letters[-MOST_LETTERS:])
        return pa.RecordBatch.from_pylist(letters, DEAD_LETTERS)

    def samples(self) -> tuple[LetterSample, ...]:
        """Returns the newest of the letters that were taken since the last call, oldest first."""
        taken, self._samples = self._samples, deque(maxlen=MOST_LETTERS)
        found, now = tuple(taken), self._clock()
        return tuple(each._replace(age=max(0.0, now - each.age)) for each in found)

    def _sample(self, letters: Sequence[Mapping[str, Any]]) -> None:
        """Keeps samples of letters, with their errors, which are released."""
        now = self._clock()
        for letter, error in zip(letters, self._errors, strict=True):
            frame = _user_frame(error)
            function, text = frame.function if frame is not None else "", letter["error"]
            sample = (function[:LETTER_TEXT], text[:LETTER_TEXT], letter["row"][:LETTER_TEXT])
            self._samples.append(LetterSample(letter["epoch"], *sample, age=now))
        self._errors.clear()

    def _without_bad_rows(
        self, epoch: int, function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch, error: Exception
    ) -> pa.RecordBatch:
        found = _bad_rows(function, batch, 0, len(batch), error)
        if not self._keeps_letters or not len(batch):  # without rows the function itself is wrong
            sample = dict(islice(found, _SAMPLE))
            rows = batch.take(pa.array(sample, pa.int64())).to_pylist()
            raise UserCodeFailed(self._operator, epoch, rows, describe(error)) from error
        bad = dict(found)
        for row, reason in bad.items():
            self.fail(epoch, reason, batch.slice(row, 1).to_pylist()[0])
        good = np.ones(len(batch), np.bool_)
        good[list(bad)] = False
        return batch.filter(pa.array(good))


def _bad_rows(
    function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch, start: int, end: int, error: Exception
) -> Iterator[tuple[int, Exception]]:
    """Finds the rows at fault in a range that is known to fail, in order, with the error of each, by bisection."""
    if end - start < 2:
        yield from ((row, error) for row in range(start, end))
        return
    middle, innocent = (start + end) // 2, True
    for first, last in ((start, middle), (middle, end)):
        reason = _failure(function, batch.slice(first, last - first))
        if reason is not None:
            innocent = False
            yield from _bad_rows(function, batch, first, last, reason)
    if innocent:  # neither half fails alone: they fail only together
        yield from ((row, error) for row in range(start, end))


def _failure(function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch) -> Exception | None:
    try:
        function(batch)
    except SeepError:
        raise
    except Exception as error:
        return error
    return None


# --- error text -------------------------------------------------------------------------------------------------------


def describe(error: Exception) -> str:
    """Returns the text of an exception, and the line of user code that it came from."""
    frame = _user_frame(error)
    where = "" if frame is None else f" (in {frame.function}, line {frame.line} of {frame.file})"
    return f"{_headline(error)}{where}"


class _UserFrame(NamedTuple):
    """The place in user code that an exception came from."""

    function: str
    line: int
    file: str


def _user_frame(error: Exception) -> _UserFrame | None:
    """Returns the innermost place of user code in the traceback of an exception."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if not Path(file).is_relative_to(_PROJECT) and "site-packages" not in file:
            return _UserFrame(frame.f_code.co_name, line, file)
    return None


def _headline(error: Exception) -> str:
    return encodable("".join(traceback.format_exception_only(error)).strip())
