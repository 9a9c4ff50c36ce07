"""Parses lines of comma-separated integers into columns with a compiled kernel, which marks malformed lines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: The result of parsing a line.
WELL, WRONG_COUNT, NO_NUMBER = 0, 1, 2

#: The most digits of a number, so that none overflows.
_DIGITS = 18
_NEWLINE, _RETURN, _COMMA, _MINUS, _ZERO, _NINE = (ord(each) for each in "\n\r,-09")


def parse(text: bytes, fields: int) -> tuple[Ints, NDArray[np.uint8], Ints]:
    r"""Returns the numbers by field and line, the result for each line, and the lines' starts followed by the last end.

    >>> numbers, found, starts = parse(b"1,-2\n3\n5,six\n", fields=2)
    >>> numbers[:, 0].tolist(), found.tolist(), starts.tolist()
    ([1, -2], [0, 1, 2], [0, 5, 7, 13])
    """
    data = np.frombuffer(text, dtype=np.uint8)
    lines = int(np.count_nonzero(data == _NEWLINE)) + (len(text) > 0 and not text.endswith(b"\n"))
    numbers, found = np.zeros((fields, lines), np.int64), np.zeros(lines, np.uint8)
    starts = np.zeros(lines + 1, np.int64)
    _parse(data, numbers, found, starts)
    return numbers, found, starts


@kernel
def _parse(data: Bytes, numbers: Ints, found: NDArray[np.uint8], starts: Ints) -> None:
    at = 0
    for line in range(len(found)):
        starts[line] = at
        at, found[line] = _parse_line(data, at, numbers, line)
    starts[len(found)] = len(data)


@kernel
def _parse_line(data: Bytes, at: int, numbers: Ints, line: int) -> tuple[int, int]:
    """Parses the line that starts at `at`; returns the start of the next line, and the result."""
    fields, well, more = 0, True, True
    while more:
        at, number, is_number, more = _parse_field(data, at)
        if fields < len(numbers):
            numbers[fields, line] = number
        fields += 1
        well &= is_number
    if fields != len(numbers):
        return at, WRONG_COUNT
    return at, WELL if well else NO_NUMBER


@kernel
def _parse_field(data: Bytes, at: int) -> tuple[int, int, bool, bool]:
    """Parses one field; returns the next start, the number, whether it is valid, and whether more fields follow."""
    negative = at < len(data) and data[at] == _MINUS
    at += negative
    number, digits, well = 0, 0, True
    while at < len(data) and data[at] != _COMMA and data[at] != _NEWLINE:
        byte = data[at]
        at += 1
        if _ZERO <= byte <= _NINE and digits < _DIGITS:
            number = 10 * number + (int(byte) - _ZERO)
            digits += 1
        elif byte != _RETURN or (at < len(data) and data[at] != _NEWLINE):
            well = False
    more = at < len(data) and data[at] == _COMMA
    return at + 1, -number if negative else number, well and digits > 0, more
