"""A short guided run of the protocol, for a reader's first minute."""

from __future__ import annotations

import random
from collections.abc import Callable

from primitives.graph import InstanceId
from primitives.slots import SlotSet, split_evenly
from seep.protocol.view import MANAGER
from seep.simulator.oracle import ReferenceRun, differences
from seep.simulator.queries import SHAPES, SimulatedQuery
from seep.simulator.world import Limits, World

Say = Callable[[str], None]


def demo(say: Say) -> int:
    """Runs words -> map -> sum -> out, kills the node of `sum`, scales `sum` out, and checks every row."""
    query = SimulatedQuery(SHAPES[0], random.Random(1), rows=60)
    query.parallelism = dict.fromkeys(query.graph.operators, 1)
    say("A query of four operators, src -> map -> sum -> out, one instance each, on simulated nodes.")

    def trace(step: int, text: str, is_event: bool) -> None:
        if is_event:
            say(f"{step:>6}  {text}")

    world = World(1, query, [], Limits(rows=60), trace)
    world.at(400, lambda: _kill(world, say))
    world.at(1_000, lambda: _scale_out(world, say))
    world.run()
    return _check(world, say)


def _kill(world: World, say: Say) -> None:
    victim = world.manager.placement[InstanceId("sum", 0)].node
    say(f"{world.now:>6}  --- the process of node {victim}, which hosts sum[0], ends without a word")
    world.kill(victim, 20)


def _scale_out(world: World, say: Say) -> None:
    owned: SlotSet = world.manager.topology.history["sum"][-1].assignment.slots_of(0)
    half = split_evenly(owned, 2)[1]
    say(f"{world.now:>6}  --- sum gets a second instance: slots {half} go from sum[0] to sum[1], with their state")
    world.perform(MANAGER, world.manager.move("sum", {1: half})[1])


def _check(world: World, say: Say) -> int:
    if world.finished is None:
        say(f"the query ended early: {world.lost}")
        return 1
    expected = ReferenceRun(world.query, world.offsets, world.finished, world.finished).run()
    wrong = differences(expected, world.store.rows, world.finished)
    rows = sum(sum(counts.values()) for counts in expected["out"].values())
    say(f"{world.finished} epochs, {rows} rows at the sink; {len(wrong)} differences from a run without failures.")
    return 1 if wrong else 0
