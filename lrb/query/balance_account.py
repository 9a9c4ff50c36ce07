"""The balance account: collects the answers of all toll assessments, and counts them for each vehicle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lrb.query.beginning import FIRST_EPOCH, InitialState
from lrb.query.columns import ANSWERS, BALANCE, EXPENDITURE
from primitives.errors import UserError
from primitives.graph import Kind
from primitives.state.frame import Frame
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.protocol.logic import Piece


class BalanceAccount(Definition):
    """Forwards answers; its state `totals` has each vehicle's number of answers by type, and can be inspected live."""

    kind: ClassVar[Kind] = Kind.STATEFUL

    def __init__(self, beginning: InitialState | None = None) -> None:
        self.beginning = beginning

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        if [(each.schema, each.keys) for each in inputs] != [(ANSWERS, ("vid",))]:
            raise UserError(f"operator '{operator}' reads one stream, of answers keyed by vid")
        return ANSWERS

    def logic(self, setting: OperatorSetting) -> BalanceAccounting:
        """See `Definition.logic`."""
        return BalanceAccounting(setting, self.beginning)


class BalanceAccounting(BatchLogic):
    """See `BalanceAccount`."""

    def __init__(self, setting: OperatorSetting, beginning: InitialState | None = None) -> None:
        self._beginning = beginning
        values = {"balances": pa.int64(), "expenditures": pa.int64()}
        self._totals = Frame("totals", {"vid": pa.int64()}, values, slot_bits=setting.slot_bits)
        super().__init__(setting, self._totals)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `Base.compute`."""
        if self._beginning is not None and piece.epoch == FIRST_EPOCH:
            self._beginning.fill(self._totals, piece.slots)
        answers = self.rows(piece)
        if not len(answers):
            return None
        counted = {
            name: pc.equal(answers["type"], kind).cast(pa.int64())
            for name, kind in (("balances", BALANCE), ("expenditures", EXPENDITURE))
        }
        self._totals.add(answers, **counted)
        return answers
