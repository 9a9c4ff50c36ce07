"""Toll assessment: keeps each vehicle's account and its tolls of earlier days, and answers queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lrb.data.history import TollHistory, history_of
from lrb.query.accounts import BALANCE as BALANCE_COLUMN
from lrb.query.accounts import UPDATED, AccountLedger, Charges, Queries, settle
from lrb.query.ahead import Ahead, by_time
from lrb.query.answers import answers
from lrb.query.beginning import FIRST_EPOCH, InitialState
from lrb.query.columns import ANSWERS, BALANCE, CROSSINGS, EXPENDITURE, TUPLES
from lrb.schema import TupleKind
from primitives.errors import UserError
from primitives.graph import Kind as OperatorKind
from primitives.state.columnar.fixed import to_numbers
from primitives.state.frame import Frame
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.protocol.logic import Piece
from seep.rows.batches import concat

#: Input ports.
QUERIES, CHARGES = range(2)


class TollAssessment(Definition):
    """Reads queries and crossings by vehicle (sections 7 and 8 of the spec).

    A balance query waits until all charges of its second have arrived. Charges never wait: toll calculators are at most
    a second ahead of the watermark, so no charge arrives that a waiting query must not include.
    """

    kind: ClassVar[OperatorKind] = OperatorKind.STATEFUL

    def __init__(self, history: Path | None = None, beginning: InitialState | None = None) -> None:
        self.history = history
        self.beginning = beginning

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        found = [(each.schema, each.keys) for each in inputs]
        if found != [(TUPLES, ("vid",)), (CROSSINGS, ("vid",))]:
            raise UserError(f"operator '{operator}' reads queries of the forwarder and crossings, both keyed by vid")
        return ANSWERS

    def logic(self, setting: OperatorSetting) -> TollAssessing:
        """See `Definition.logic`."""
        return TollAssessing(setting, history_of(self.history), self.beginning)


class TollAssessing(BatchLogic):
    """See `TollAssessment`."""

    def __init__(self, setting: OperatorSetting, history: TollHistory, beginning: InitialState | None = None) -> None:
        bits = setting.slot_bits
        self._beginning = beginning
        self._history = history
        self._accounts = Frame(
            "accounts", {"vid": pa.int64()}, {"balance": pa.int64(), "updated": pa.int64()}, slot_bits=bits
        )
        self._waiting = Ahead(setting.inputs[QUERIES], bits)
        super().__init__(setting, self._accounts, self._waiting.state)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `Base.compute`."""
        if self._beginning is not None and piece.epoch == FIRST_EPOCH:
            self._beginning.fill(self._accounts, piece.slots)
        queries, crossings = self.rows(piece, QUERIES), by_time(self.rows(piece, CHARGES), "time")
        balances = queries.filter(pc.equal(queries["type"], int(TupleKind.BALANCE)))
        expenditures = queries.filter(pc.equal(queries["type"], int(TupleKind.EXPENDITURE)))
        due = self._waiting.due(balances, piece.watermark, piece.slots)
        return concat([self._balances(due, crossings), self._expenditures(expenditures)], ANSWERS)

    def _balances(self, queries: pa.RecordBatch, crossings: pa.RecordBatch) -> pa.RecordBatch:
        """Applies charges and answers balance queries; both are ordered by time."""
        charged = self._accounts.locate(crossings["vid"])
        asked = self._accounts.locate(queries["vid"], create=False)
        place = self._accounts.in_place(charged)
        charges = Charges(place.rows, to_numbers(crossings["time"]), to_numbers(crossings["charged"]))
        found = np.empty((len(queries), 2), np.int64)
        settle(
            AccountLedger(place.words, place.width, place.first),
            charges,
            Queries(asked, to_numbers(queries["time"]), found),
        )
        return answers(
            BALANCE,
            queries,
            qid=queries["qid"],
            balance=found[:, BALANCE_COLUMN].copy(),
            result_time=found[:, UPDATED].astype(np.int32),
        )

    def _expenditures(self, queries: pa.RecordBatch) -> pa.RecordBatch:
        tolls = self._history.tolls(*(to_numbers(queries[name]).astype(np.int64) for name in ("vid", "day", "xway")))
        return answers(EXPENDITURE, queries, qid=queries["qid"], balance=tolls)
