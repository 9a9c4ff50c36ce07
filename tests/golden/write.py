"""Writes the golden state of this version: python -m tests.golden.write

A version's directory has `state.zip`, all that the version stores, and `expected.json`, what is in it as plain text. It
is written once and never changed: later versions must read it. What is new in the same version, such as another kind of
container, goes into one more directory beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from formats.avro_file import Compression
from formats.manifest import Manifest
from primitives.errors import DISTRIBUTION
from primitives.event import Event
from primitives.graph import InstanceId
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.container import State
from primitives.state.own import OwnState
from primitives.state.values import Values
from seep.cli.report_commands import read as read_report
from seep.protocol import events as protocol
from seep.protocol.cuts import Recalled
from seep.query.program import Program
from seep.query.query import Query
from seep.record import events as record
from seep.record.causes.story import story
from seep.record.report import make_report
from seep.record.samples import Sample, sample_of
from seep.record.status import InstanceStatus, Status
from seep.sinks.reading import read
from seep.sinks.spool import SinkSpool as Shown
from seep.spark.inlet.pieces import Key, PushedBatch, PushedPiece
from seep.spark.inlet.spool import InletSpool
from seep.storage.layout import BackupKey
from seep.storage.memory import MemoryStore
from seep.storage.records import Claim, Lease, Records, Seal
from seep.storage.store import BlobStore
from seep.testing import InProcess
from tests.golden import queries
from tests.golden.cuts import CREATED, StoredCuts, StoredState, catalogue_of

HERE = Path(__file__).parent
#: Each query with the codec of its blobs, and whether it is restored after the second savepoint or the first.
QUERIES = {
    "containers": (queries.containers, Compression.ZSTD),
    "operators": (queries.operators, Compression.NONE),
}
#: Keys of every type that can be one: which slot they are in may never change.
KEYS: dict[str, pa.Array] = {
    "bool": pa.array([False, True, None]),
    "int8": pa.array([-1, 7], pa.int8()),
    "int64": pa.array([0, -1, 2**62, None]),
    "uint64": pa.array([2**64 - 1], pa.uint64()),
    "float32": pa.array([0.5, -0.0, float("nan")], pa.float32()),
    "float64": pa.array([0.5, -0.0, float("inf")]),
    "string": pa.array(["", "tea", "é", "a longer text than sixteen bytes"]),
    "binary": pa.array([b"", b"\x00\x01"]),
    "date32": pa.array([1, 20_000], pa.date32()),
    "timestamp": pa.array([0, 10**15], pa.timestamp("us", "UTC")),
    "decimal": pa.array([1, -5], pa.decimal128(20, 2)),
}


def write(folder: Path) -> None:
    """The golden state of now, and what is in it, in a new directory."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        expected = write_state(place)
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "state.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(path for path in place.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(place).as_posix(), (2026, 1, 1, 0, 0, 0))
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    text = json.dumps(expected, indent=1, ensure_ascii=False, sort_keys=True)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


def write_state(place: Path) -> dict[str, Any]:
    """Everything that is stored, below a directory; what must be found in it."""
    store = MemoryStore("golden")  # flushes nothing to a disk
    expected: dict[str, Any] = {
        "contents": {name: _write_query(store, name) for name in QUERIES},
        "codecs": _write_codecs(store),
        "files": _write_files(store, place),
        "slots": slots_of_keys(),
        "pushed": _write_pushed(store),
        "records": _write_records(store),
        "report": _write_report(place / "report.json"),
    }
    for key in store.list():
        (path := place / "storage" / key).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(key))
    return expected


# --- checkpoints of queries -------------------------------------------------------------------------------------------


def _write_query(store: BlobStore, name: str) -> dict[str, Any]:
    """Two savepoints, the second of which builds on the first; and what the query puts out after the second."""
    made, codec = QUERIES[name]
    with InProcess(made()) as process:
        program = process.program
        process._kernel.cuts = StoredCuts(program, store, codec)
        for batches in (queries.FIRST, queries.SECOND):
            while process.epoch < batches:
                process.pulse()
                process.settle()
            process.savepoint()
    manifests = {str(each.id): each for each in catalogue_of(store, name).complete()}
    return {
        "checkpoints": {id: contents(program, manifest, store) for id, manifest in manifests.items()},
        "outputs": outputs_after(made(), store),
    }


def contents(
    program: Program, manifest: Manifest, store: BlobStore, shares: int = 1
) -> dict[str, dict[str, list[str]]]:
    """What is in each container of each operator, by line; if its slots are shared out, of all shares together."""
    state = StoredState(program, store)
    found: dict[str, dict[str, list[str]]] = {}
    for operator, component in manifest.components.items():
        lines = found[operator] = {}
        for slots in SlotSet.full(component.slot_bits).parts(shares):
            for name, more in _contents_of(program, operator, state.recall(manifest, operator, slots)).items():
                lines[name] = sorted([*lines.get(name, []), *more])
    return found


def _contents_of(program: Program, operator: str, recalled: Recalled) -> dict[str, list[str]]:
    logic: Any = program.logic(operator)
    with closing(logic):
        if recalled.chunks:
            logic.state.restore(recalled.chunks)
        return {name: sorted(lines_of(state)) for name, state in containers_of(logic).items()}


def containers_of(logic: Any) -> dict[str, State]:
    """The containers of an operator, by name."""
    return dict(logic.state._containers)


def lines_of(state: State) -> Iterator[str]:
    """Each entry of a container as text that is the same in every process and with every version of a library."""
    if isinstance(state, Values):
        return (f"{plain(key)} -> {plain(value)}" for key, value in state.items())
    if isinstance(state, OwnState):
        held = state._operator.get_processing_state(SlotSet.full(state.slot_bits))
        return (f"{slot} -> {plain(value)}" for slot, value in held.items())
    chunk = state.snapshot(SlotSet.full(state.slot_bits))
    return (plain(row) for row in chunk.rows.to_pylist())


def plain(value: Any) -> str:
    """
    >>> plain({"seen": {2, 1}, "half": np.float32(0.5), "at": [np.arange(2)]})
    "{'seen': {1, 2}, 'half': float32 0.5, 'at': [int64 [0, 1]]}"
    """
    match value:
        case np.ndarray() | np.generic():
            return f"{value.dtype.name} {value.tolist()!r}"
        case dict():
            return "{" + ", ".join(f"{key!r}: {plain(each)}" for key, each in value.items()) + "}"
        case set() | frozenset():
            return f"{'frozen ' * isinstance(value, frozenset)}{{{', '.join(sorted(map(plain, value)))}}}"
        case list():
            return f"[{', '.join(map(plain, value))}]"
        case tuple():
            return f"({', '.join(map(plain, value))})"
    return repr(value)


def outputs_after(query: Query, store: BlobStore, shares: int = 1) -> dict[str, list[str]]:
    """What each sink gets when the query goes on from its newest checkpoint to the end of its input."""
    with InProcess(query) as process:
        process._kernel.cuts = StoredCuts(process.program, store)
        process.restart(
            {operator: shares for operator in ("everything", "own", "totals") if operator in query.vertices}
        )
        process.run()
        return {sink: sorted(map(plain, table.to_pylist())) for sink, table in process.tables.items()}


# --- what else is stored ----------------------------------------------------------------------------------------------


def _write_codecs(store: BlobStore) -> dict[str, Any]:
    """A small checkpoint with each codec."""
    found = {}
    for codec in Compression:
        query = queries.small(f"codec-{codec}")
        with InProcess(query) as process:
            process._kernel.cuts = StoredCuts(process.program, store, codec)
            process.pulse()
            process.settle()
            process.savepoint()
            (manifest,) = catalogue_of(store, query.name).complete()
            found[str(codec)] = contents(process.program, manifest, store)
    return found


def _write_files(store: BlobStore, place: Path) -> dict[str, Any]:
    """A run that reads and writes files, and dies after its savepoint; what it would have written in the end."""
    queries.write_inputs(place / "inputs")
    with InProcess(queries.files(place), rows_per_epoch=6) as process:
        process._kernel.cuts = StoredCuts(process.program, store)
        _pulses(process, 2)
        process.savepoint()
        _pulses(process, 2)
    shown = Shown(place / "outputs" / "spark")
    shown.show(str(shown.id), 2)
    shown.take(1)
    with tempfile.TemporaryDirectory() as elsewhere:
        queries.write_inputs(Path(elsewhere) / "inputs")
        with InProcess(queries.files(Path(elsewhere)), rows_per_epoch=6) as process:
            process.run()
        return written(Path(elsewhere)) | {"shown": 2, "taken": 1}


def _pulses(process: InProcess, count: int) -> None:
    for _ in range(count):
        process.pulse()
        process.settle()


def written(place: Path) -> dict[str, Any]:
    """The rows in the directories of sinks."""
    kinds = ("parquet", "csv", "json")
    found: dict[str, Any] = {kind: sorted(map(plain, read(place / "outputs" / kind).to_pylist())) for kind in kinds}
    spool = Shown(place / "outputs" / "spark")
    return found | {"columns for Spark": str(spool.schema)}


def slots_of_keys() -> dict[str, list[int]]:
    """The slot of each of `KEYS`, of 2^16."""
    return {name: slots_of(hash_keys([keys]), 16).tolist() for name, keys in KEYS.items()}


def _write_pushed(store: BlobStore) -> list[Any]:
    """What Spark has pushed to a source: a batch of two pieces, one of which has no rows."""
    spool, rows = InletSpool(store, "pushed"), queries.batch(0)
    pieces = PushedPiece(0, "a1", len(rows), rows.nbytes, ("(storage)",)), PushedPiece(1, "b2", 0, 0, ())
    batch = PushedBatch(3, "stream", 7, 60_000_000, pieces)
    spool.put_piece(Key("clicks", "stream", 7), 0, "a1", rows)
    spool.put("clicks", batch)
    return pushed_lines(store)


def pushed_lines(store: BlobStore) -> list[Any]:
    """The pushed batch and its rows, as they are found."""
    spool = InletSpool(store, "pushed")
    batch = spool.get("clicks", *spool.numbers("clicks"))
    rows = spool.get_piece(Key("clicks", batch.stream, batch.id), batch.pieces[0])
    return [batch.to_plain(), [plain(row) for row in rows.to_pylist()]]


def _write_records(store: BlobStore) -> dict[str, Any]:
    """What the catalogue notes: two runs, a sealed checkpoint, one that is read and one that is being removed."""
    catalogue = catalogue_of(store, "records")
    run = catalogue.enter("monday", {"sinks": {"out": {"runs": ["r1"]}}})
    for _ in range(2):
        with run.begin() as attempt:
            attempt.commit(Manifest(query="records", id=attempt.id, epoch=attempt.id, created=CREATED).to_json())
    run.begin().put_blob("counter", "0-left", [b"of a checkpoint that nobody completed"])
    catalogue.enter("tuesday")
    records = Records(store, "records")
    records.pin(2, "3fa9", Lease("an inspection", CREATED + 60))
    records.announce_removal(1, "81c0")
    store.put(str(BackupKey("records", "5b1c", "counter", 0, 1, 1, 7, None)), [b"of a dead run"])
    return records_found(store)


def records_found(store: BlobStore) -> dict[str, Any]:
    """The same, as it is found."""
    records, catalogue = Records(store, "records"), catalogue_of(store, "records")
    there, sealed = records.contents(), records.manifest(3)
    assert isinstance(sealed, Seal)
    return {
        "generation": records.generation(),
        "runs": [records.run_of(number) for number in sorted(there.generations)],
        "note": catalogue.last_note(),
        "claims": {str(id): _claim(records.claim_of(id)) for id in sorted(there.checkpoints)},
        "complete": [info.id for info in catalogue.complete()],
        "seal": plain([sealed.reason]),
        "leases": [
            plain([lease.reader, lease.until, lease.generation]) for _, lease in records.leases(there.checkpoint(2))
        ],
        "removals": len(there.checkpoint(1).removals),
        "backups": sorted(there.backups),
    }


def _write_report(path: Path) -> list[str]:
    """The report of a run that has scaled out and lost a node; the story that it tells."""
    first, second = InstanceId("counter", 0), InstanceId("counter", 1)
    events: list[Event] = [
        record.NodeJoined(node="n1"),
        record.ScalingOut(operator="counter", before=1, after=2, why="0.97 of its core", at=3.5),
        protocol.MoveAnnounced(
            operator="counter", plan=7, first=210, slots=128, view=12, instances=(first, second), at=4.0
        ),
        protocol.MoveSealed(operator="counter", plan=7, view=12, at=4.1),
        protocol.MoveEffective(operator="counter", plan=7, first=210, at=4.2),
        protocol.StateTakenIn(subject=second, origin=first, first=210, bytes=12_300_000, at=4.3),
        record.ScaledOut(operator="counter", before=1, after=2, seconds=0.8, waited=0.5, latency_peak=0.1, at=4.3),
        protocol.MoveComplete(operator="counter", plan=7, at=4.9),
        record.NodeKilled(node="n2", hosted=(second,), at=9.0),
        protocol.NodeLost(node="n2", why="its port refuses connections", at=9.1),
        protocol.Rebound(subject=second, to="n4", lost="n2", at=9.2),
        protocol.StateRestored(subject=second, epoch=400, at=9.3),
        record.InstanceRecovered(subject=second, seconds=0.5, detected=0.1, restored=0.2, replayed=0.2, at=9.5),
        record.RunFinished(why="at epoch 600", at=12.0),
    ]
    figures = {"rows": 60_000, "latency": {"p50": 0.01, "p99": 0.08}, "largest_gap": 0.5}
    report = make_report("wordcount", events, [_sample(at) for at in (0.0, 4.0, 8.0, 12.0)], **figures)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return story_of(path)


def _sample(at: float) -> Sample:
    epoch, name = int(at * 50), "counter[0]#1"
    instance = InstanceStatus(name, "counter", "n1", "running", epoch, epoch * 100, 0, 0.5, 0.25, 1000, 0, 0, {})
    return sample_of(Status(at, epoch, epoch, epoch * 100, 5000.0, {"p50": 0.01}, (instance,), 3, 1))


def story_of(path: Path) -> list[str]:
    """What a report in a file tells."""
    return story(read_report(path)["events"])


def _claim(claim: Claim) -> str:
    return plain((claim.run, claim.generation, claim.builds_on))


def main() -> None:
    present = version(DISTRIBUTION)
    names = (present if number == 1 else f"{present}-{number}" for number in count(1))
    folder = next(HERE / name for name in names if not (HERE / name).exists())
    write(folder)
    sys.stdout.write(f"written: {folder}, {sum(path.stat().st_size for path in folder.iterdir())} bytes\n")


if __name__ == "__main__":
    main()
