"""Comparison: the work of a node's instances between two of its reports, as rates and utilisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.observation import InstanceReport
from primitives.graph import InstanceId
from seep.record.reports import InstanceFigures, NodeReport


def compared(
    name: str, before: NodeReport, now: NodeReport, slots: Mapping[InstanceId, int] | None = None
) -> Iterator[InstanceReport]:
    """Returns the rates of the instances that are in both reports.

    Each instance gets its thread's part of the process's CPU time. Utilisation is 1 at most: CPU time beyond the share
    (credit, or idle cores) does not show what the share can do.
    """
    seconds = now.at - before.at
    if seconds <= 0:
        return
    both = list(pairs(before, now))
    threads = sum(late.cpu - early.cpu for early, late in both)
    for early, late in both:
        # the process does more for an instance than its thread: letters, streams, and pauses that both still owe
        part = (late.cpu - early.cpu) / threads if threads > 0 else 1 / len(both)
        whole = part * (now.cpu - before.cpu)
        stolen = min((late.stolen - early.stolen) / seconds, 0.9)
        could_have = min(now.cores, max(1.0, now.cores) * (1 - stolen))
        instance = late.identity.instance
        yield InstanceReport(
            instance=instance,
            node=name,
            utilisation=min(1.0, whole / (could_have * seconds)),
            busy=(late.busy - early.busy) / seconds,
            rows_in=(late.rows_in - early.rows_in) / seconds,
            rows_out=(late.rows_out - early.rows_out) / seconds,
            waiting=late.waiting,
            unsent=late.unsent,
            outbox_bytes=late.outbox_bytes,
            state_bytes=late.state_bytes,
            memory=now.kept / now.memory if now.memory else 0.0,
            slots=(slots or {}).get(instance, 0),
        )


def pairs(before: NodeReport, now: NodeReport) -> Iterator[tuple[InstanceFigures, InstanceFigures]]:
    """The figures of each incarnation that is in both reports, from the earlier and the later one."""
    earlier = {each.identity: each for each in before.instances}
    return ((earlier[each.identity], each) for each in now.instances if each.identity in earlier)
