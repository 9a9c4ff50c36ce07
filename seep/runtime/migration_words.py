"""What is told of a migration, as events."""

from __future__ import annotations

from seep.runtime.events import Events
from seep.runtime.migration import Migration, MigrationProgress, State

_KINDS = {
    State.DONE: "migrated",
    State.CANCELLED: "migration cancelled",
    State.REFUSED: "migration refused",
}
_FIGURES = ("steps", "steps_done", "slots_moved", "slots_remaining", "bytes", "bytes_ahead", "held_back")


def tell_begun(events: Events, migration: Migration) -> None:
    steps = migration.steps
    assert steps is not None
    detail = f"{migration.course.name}, {len(steps.slots):,} slots in {len(steps):,} steps: {migration.why}"
    events.add("migration begun", operator=migration.operator, detail=detail)


def tell_over(events: Events, migration: Migration) -> None:
    progress = migration.progress(events.now)
    events.add(
        _KINDS[migration.state],
        operator=migration.operator,
        seconds=None if migration.begun is None else progress.seconds,
        detail=_detail(progress),
        parts=_parts(migration),
        numbers={name: getattr(progress, name) for name in _FIGURES}
        | {f"latency_{name}": value for name, value in progress.latency.items()},
    )


def _detail(progress: MigrationProgress) -> str:
    slots = progress.slots_moved + progress.slots_remaining
    moved = f"{progress.slots_moved:,} of {slots:,} slots in {progress.steps_done:,} steps"
    if progress.state is not State.DONE:
        return f"{moved}: {progress.why}"
    handed = f"{progress.bytes:,} bytes handed over, {progress.held_back:,} rows held back"
    latency = f", latency up to {progress.latency['max']:.3f} s" if progress.latency else ""
    return f"{moved}, {handed}{latency}"


def _parts(migration: Migration) -> dict[str, float]:
    """Of the time until its end: before it began, while slots moved, and until all was backed up."""
    if migration.begun is None or migration.moved is None or migration.ended is None:
        return {}
    return {
        "waited": migration.begun - migration.opened,
        "moved": migration.moved - migration.begun,
        "settled": migration.ended - migration.moved,
    }
