"""Applies charges and balance queries in order of time, in compiled code (section 7 of the spec)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import pointer, prefetch

Ints = NDArray[np.int64]

#: Columns of an account's state.
BALANCE, UPDATED = range(2)

#: Number of rows by which memory is prefetched.
_AHEAD = 64


class AccountLedger(NamedTuple):
    """The accounts, in the layout of `InPlace`."""

    words: Ints
    width: int
    first: int


class Charges(NamedTuple):
    """Charges by time, with the row of each one's account."""

    row: Ints
    time: NDArray[np.int32]
    amount: Ints


class Queries(NamedTuple):
    """Balance queries by time, with the row of each one's account, or -1, and room for the answers."""

    row: Ints
    time: Ints
    answer: Ints  #: BALANCE, UPDATED


@kernel
def settle(ledger: AccountLedger, charges: Charges, queries: Queries) -> None:
    """Applies the charges, and answers each query after all charges up to the end of its second (4.3)."""
    words, count, asked = pointer(ledger.words), len(charges.row), 0
    for at in range(count):
        prefetch(words, charges.row[min(at + _AHEAD, count - 1)] * ledger.width)
        while asked < len(queries.row) and queries.time[asked] < charges.time[at]:
            answer(ledger, queries, asked)
            asked += 1
        account = charges.row[at] * ledger.width + ledger.first
        words[account + BALANCE] += charges.amount[at]
        words[account + UPDATED] = charges.time[at]
    for left in range(asked, len(queries.row)):
        answer(ledger, queries, left)


@kernel
def answer(ledger: AccountLedger, queries: Queries, at: int) -> None:
    """Writes the state of an account as the answer to a query."""
    account = queries.row[at] * ledger.width + ledger.first
    for column in (BALANCE, UPDATED):
        queries.answer[at, column] = ledger.words[account + column] if queries.row[at] >= 0 else 0
