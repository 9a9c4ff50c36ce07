"""Processors as people write them for Spark's `transformWithState`: nothing of `seep` is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

OUTPUT = "user string, kind string, count bigint, pages string, latest timestamp"
#: Milliseconds after which a visit is over.
GAP = 50
#: A time that no row has.
NEVER = 10**12


class Visits(StatefulProcessor):
    """Visits of users to pages: how many rows each had, which pages how often, and the last rows, until it is quiet."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "count bigint, latest timestamp")
        self._pages = handle.getMapState("pages", "page string", "times int")
        self._recent = handle.getListState("recent", "page string, at bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002
        count, latest = self._total.get() if self._total.exists() else (0, None)
        for row in rows:
            count, latest = count + 1, row.seen
            page = (row.page,)
            times = self._pages.getValue(page)[0] if self._pages.containsKey(page) else 0
            self._pages.updateValue(page, (times + 1,))
            self._recent.appendValue((row.page, row.at))
            self._set_timer(row.at + GAP)
        self._total.update((count, latest))
        yield self._row(key, "rows")

    def _set_timer(self, time: int) -> None:
        """One at a time: a row puts the end of its visit off."""
        for earlier in self._handle.listTimers():
            self._handle.deleteTimer(earlier)
        self._handle.registerTimer(time)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        assert expiredTimerInfo.getExpiryTimeInMs() <= timerValues.getCurrentWatermarkInMs()
        yield self._row(key, f"quiet at {expiredTimerInfo.getExpiryTimeInMs()}")
        if next(iter(self._pages.values()))[0] % 2:
            self._pages.removeKey(next(self._pages.keys()))
        self._recent.clear()
        if not list(self._pages.keys()):
            self._total.clear()

    def _row(self, key: Any, kind: str) -> Row:
        pages = sorted((page, times) for (page,), (times,) in self._pages.iterator())
        recent = [tuple(each) for each in self._recent.get()]
        count, latest = self._total.get()
        return Row(user=key[0], kind=kind, count=count, pages=f"{pages} {recent}", latest=latest)


class Totals(StatefulProcessor):
    """How many rows each user had so far; and when there will be no more, how many in all."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        self._handle.registerTimer(NEVER)
        yield Row(user=key[0], kind="so far", count=count)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: ARG002
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Row]:
        assert expiredTimerInfo.getExpiryTimeInMs() == NEVER
        yield Row(user=key[0], kind="in all", count=self._count.get()[0])
