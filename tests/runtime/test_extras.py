"""What stateless operators have besides their output comes with a savepoint to whoever begins from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import seep
from primitives.errors import UserError
from seep.inspection.stored import Stored
from seep.operators.definition import Input
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import SCHEMA, committed, numbers, start

ROWS, PARTITIONS = 10_000, 2


class Seen(seep.StatelessOperator):
    """Counts its rows, and puts out with each what others had counted before."""

    def __init__(self) -> None:
        self.counted, self.taken = 0, 0

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return pa.schema([*inputs[0].schema, ("taken", pa.int64())])

    def process(self, inputs: seep.Inputs) -> Any:
        self.counted += len(inputs[0])
        return {"n": inputs[0]["n"], "taken": [self.taken] * len(inputs[0])}

    def get_extra(self) -> bytes:
        return str(self.counted).encode()

    def set_extra(self, extras: Sequence[bytes]) -> None:
        self.taken = sum(map(int, extras))


class Careless(Seen):
    def set_extra(self, extras: Sequence[bytes]) -> None:  # noqa: ARG002
        raise KeyError("no such thing")


def query_of(operator: type[seep.StatelessOperator]) -> seep.Query:
    query = seep.Query("extras")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=PARTITIONS, rows=ROWS))
    source.apply("seen", operator).sink("out", seep.sinks.collect())
    return query


class Saved(NamedTuple):
    storage: StorageSettings
    number: int
    rows: int  #: that were read before it


@pytest.fixture(scope="module")
def saved(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A savepoint of three instances."""
    storage = StorageSettings(location=str(tmp_path_factory.mktemp("extras")))
    options: dict[str, Any] = {"storage": storage, "checkpoint": None, "rate": seep.Rate(5_000)}
    with start(host, query_of(Seen), parallelism={"seen": 3}, **options) as run:
        committed(run, 10)
        number = run.savepoint()
    with Stored.open(storage, "extras", number) as stored:
        return Saved(storage, number, sum(position[1] for position in stored.manifest.sources["numbers"].values()))


def begun(host: Host, saved: Saved, instances: int, operator: type[seep.StatelessOperator] = Seen) -> Run:
    options: dict[str, Any] = {"storage": saved.storage, "restore": str(saved.number), "checkpoint": None}
    with start(host, query_of(operator), parallelism={"seen": instances}, **options) as run:
        assert run.wait(120)
    return run


@pytest.mark.parametrize("instances", [1, 3, 4])
def test_each_extra_goes_to_one_instance_of_the_next_run(host: Host, saved: Saved, instances: int) -> None:
    run = begun(host, saved, instances)
    taken = set(run.result("out")["taken"].to_pylist())
    assert saved.rows > 0
    assert sum(taken) == saved.rows
    assert len(taken) == instances or 0 in taken, "instances that are new have none"


def test_an_operator_that_cannot_take_over_what_was_kept_is_named(host: Host, saved: Saved) -> None:
    with pytest.raises(UserError, match="operator 'seen', its extra data: KeyError: 'no such thing'"):
        begun(host, saved, 1, Careless)
