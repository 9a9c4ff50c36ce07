"""A sink that notes when each epoch came to it, and when its rows were due: what latencies and pauses are told by."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkDefinition, SinkStore

#: One commit; `at` is unix time in microseconds, as the column `due` of the rows is.
COMMIT = np.dtype([("epoch", np.int64), ("at", np.int64), ("rows", np.int64)])


class Noting(SinkDefinition):
    """Writes to a directory of this machine. For one instance whose node is not killed: it fences nobody."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def check(self, operator: str, schema: pa.Schema) -> None:
        """The rows have a column `due`, or nothing can be told of them."""
        assert "due" in schema.names, f"{operator} needs the column 'due'"

    def store(self, operator: str, schema: pa.Schema) -> Notes:  # noqa: ARG002
        return Notes(self._directory)


class Notes(SinkStore):
    """Two files, written at every commit and not only at the end: a run ends its nodes with `kill -9`."""

    def __init__(self, directory: Path) -> None:
        self._dues = open(directory / "dues", "ab", buffering=0)  # noqa: SIM115
        self._commits = open(directory / "commits", "ab", buffering=0)  # noqa: SIM115

    def open(self, sink: Incarnation) -> int:  # noqa: ARG002
        return 0

    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:  # noqa: ARG002
        at = time.time_ns() // 1000
        for batch in batches:
            self._dues.write(batch["due"].to_numpy())
        self._commits.write(np.array([(epoch, at, sum(map(len, batches)))], COMMIT).data)
        return epoch

    def close(self) -> None:
        self._dues.close()
        self._commits.close()


@dataclass(frozen=True, slots=True)
class Noted:
    """The commits that a sink has recorded; times in microseconds."""

    commits: NDArray[np.void]
    dues: NDArray[np.int64]

    @classmethod
    def read(cls, directory: Path) -> Noted:
        commits = np.fromfile(directory / "commits", COMMIT)
        return cls(commits, np.fromfile(directory / "dues", np.int64)[: commits["rows"].sum()])

    def latencies(self, warm_up: float) -> NDArray[np.float64]:
        """Seconds from when a row was due to its commit; without rows due in the first `warm_up` seconds."""
        late: NDArray[np.float64] = (np.repeat(self.commits["at"], self.commits["rows"]) - self.dues) / 1e6
        kept: NDArray[np.float64] = late[self.dues >= self.dues.min() + warm_up * 1e6]
        return kept

    def longest_pause(self, begin: float, end: float) -> float:
        """The longest time without a commit, in seconds, of those that lie at least partly between two unix times."""
        at = self.commits["at"] / 1e6
        concerned = (at[1:] > begin) & (at[:-1] < end)
        return float(np.diff(at)[concerned].max())
