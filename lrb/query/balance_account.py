"""The balance account: gathers the answers of all toll assessments, and keeps what each vehicle was told in all."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lrb.query.columns import BALANCE, EXPENDITURE
from seep.operators.context import Context, Inputs
from seep.operators.custom import Operator
from seep.operators.definition import Input


class BalanceAccount(Operator):
    """Passes answers on. Its state, `totals`, has for each vehicle how many of each type there were.

    It can be looked at while the query runs.
    """

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        """See `Operator.output`."""
        return inputs[0].schema

    def open(self, context: Context) -> None:
        """See `Operator.open`."""
        self._totals = context.frame("totals", {"balances": pa.int64(), "expenditures": pa.int64()})

    def process(self, inputs: Inputs) -> pa.RecordBatch:
        """See `Operator.process`."""
        answers = inputs[0]
        counted = {
            name: pc.equal(answers["type"], kind).cast(pa.int64())
            for name, kind in (("balances", BALANCE), ("expenditures", EXPENDITURE))
        }
        self._totals.add(answers, **counted)
        return answers
