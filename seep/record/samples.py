"""Samples: compact statuses for the time series of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seep.record.status import Status

#: The figures of each instance, in this order.
_FIGURES = ("utilisation", "rows_in", "state_bytes", "outbox_bytes", "rows_out", "waiting", "unsent")


@dataclass(frozen=True, slots=True)
class Sample:
    """The kept part of a status. Values that equal those of the previous sample are shared with it."""

    at: float
    rows: int
    committed: int
    rest: Mapping[str, Any]
    hosted: tuple[tuple[str, str], ...]  #: instances and their nodes
    figures: NDArray[np.float64]  #: one row of figures per instance

    def to_json(self) -> dict[str, Any]:
        """The sample as a point of the time series, for the report."""
        instances = {
            name: {"node": node, "utilisation": used, **dict(zip(_FIGURES[1:], map(int, rest), strict=True))}
            for (name, node), (used, *rest) in zip(self.hosted, self.figures.tolist(), strict=True)
        }
        return {"at": self.at, "rows": self.rows, **self.rest, "instances": instances}


def sample_of(status: Status, before: Sample | None = None) -> Sample:
    """Makes the sample of a status."""
    hosted = tuple((each.name, each.node) for each in status.instances)
    behind = [each.watermark_behind for each in status.operators if each.watermark_behind is not None]
    figures = [[getattr(each, name) for name in _FIGURES] for each in status.instances]
    return Sample(
        at=status.at,
        rows=status.rows_read,
        committed=status.committed,
        rest={
            "rows_per_second": status.rows_per_second,
            "offered": status.offered,
            "latency": dict(status.latency),
            "epochs_in_flight": status.ticked - status.committed,
            "nodes": status.nodes,
            "idle_nodes": status.idle_nodes,
            "vms": dict(status.vms),
            "imbalance": dict(status.imbalance),
            "rows_out_per_second": status.rows_out_per_second,
            "edges": dict(status.edges),
            "window": status.window,
            "since_commit": status.since_commit,
            "watermark_behind": max(behind, default=None),
        },
        hosted=before.hosted if before is not None and before.hosted == hosted else hosted,
        figures=np.array(figures).reshape(-1, len(_FIGURES)),
    )
