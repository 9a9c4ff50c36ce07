"""The toll collector: collects the notifications and alerts of all toll calculators."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lrb.query.answers import answers
from lrb.query.columns import ALERT, TOLL
from lrb.schema import UNUSED


def collected(crossings: pa.RecordBatch) -> pa.Table:
    """Returns a notification for each vehicle that enters a segment and stays, and an alert where one is due."""
    told = crossings.filter(pc.not_equal(crossings["toll"], UNUSED))
    warned = told.filter(pc.not_equal(told["accident"], UNUSED))
    return pa.Table.from_batches(
        [
            answers(TOLL, told, lav=told["lav"], toll=told["toll"]),
            answers(ALERT, warned, segment=warned["accident"]),
        ]
    )
