"""State in the simulator travels on a lane of its own, in segments that are lost, repeated and overtaken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from seep.kernel.bulk_lanes import BulkLanes
from seep.kernel.mail import Carried
from seep.protocol.bulk import BulkOutbox
from seep.simulator.faults import What
from seep.simulator.schedule import Plan, Verdict, run_schedule


def test_segments_are_lost_repeated_and_resumed_and_every_schedule_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches the lanes of schedules in which links are cut; without that, the test would show nothing."""
    seen = Counter[str]()
    arrived, resume = BulkLanes.arrived, BulkOutbox.resume

    def watched(lanes: BulkLanes, source: str, target: str, carried: Carried) -> Any:
        inbox = lanes._inboxes.get((source, target))
        begun = 0 if inbox is None else inbox.standing().positions.get(carried.segment.number, 0)
        message = arrived(lanes, source, target, carried)
        seen["whole"] += message is not None
        seen["repeated"] += carried.segment.start < begun
        seen["of several segments"] += message is not None and carried.segment.size > 1
        if message is not None:
            seen[type(message[1]).__name__] += 1
        return message

    def resumed(outbox: BulkOutbox[Any], standing: Any) -> None:
        seen["gone on in the middle"] += any(standing.positions.values())
        resume(outbox, standing)

    monkeypatch.setattr(BulkLanes, "arrived", watched)
    monkeypatch.setattr(BulkOutbox, "resume", resumed)
    plan = Plan(most_faults=30, over_steps=500, only=(What.CUT, What.KILL, What.MOVE, What.CHECKPOINT))
    for seed in range(12):
        outcome = run_schedule(seed, plan)
        assert outcome.verdict is not Verdict.VIOLATION, outcome
    for what in (
        "of several segments",
        "repeated",
        "gone on in the middle",
        "StoreBackup",
        "Retrieved",
        "StateMoved",
    ):
        assert seen[what] > 0, seen
