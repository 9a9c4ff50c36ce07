"""The settings of a run's manager, from the program and the options of the run."""

from __future__ import annotations

from policies.backup import BackupStrategy
from primitives.graph import Kind
from seep.driver.options import RunOptions
from seep.protocol.manager.state import ManagerSettings
from seep.query.program import Program

#: Seconds between two rounds of trims: each round is a letter to every node, too many for every short epoch.
_TRIM = 0.1
#: Epochs that may be open besides those of the file that a sink is writing, even if the window is smaller.
_BESIDE_ROLL = 6


def manager_settings(program: Program, options: RunOptions) -> ManagerSettings:
    roll = max((definition.roll for definition, _ in program.sinks.values()), default=1)
    strategies = {o: options.backup.of(o).strategy for o in program.graph.of_kind(Kind.STATEFUL)}
    return ManagerSettings(
        last_cut=options.storage.location is not None,
        window=max(options.window, roll + _BESIDE_ROLL),
        trim_every=max(1, round(_TRIM / options.epoch)),
        recovery_parallelism=options.recovery_parallelism,
        unkept=frozenset(o for o, strategy in strategies.items() if strategy is BackupStrategy.NONE),
        patience={o: round(options.backup.of(o).timeout / options.epoch) for o in program.graph.operators},
    )
