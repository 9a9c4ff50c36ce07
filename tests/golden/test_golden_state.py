"""State that any version has written is read by this one: tests/golden has a directory of it for each version.

What is stored must stay readable for ever. If a test here fails, the code has changed what it reads, and state of users
would be lost: mend the code, and leave the golden state as it is.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import primitives
import seep
import seep.operators
from formats import column_bytes
from formats.avro_file import Compression
from formats.column_bytes import layout_of
from primitives.errors import DISTRIBUTION
from primitives.graph import Kind
from primitives.state import codec
from primitives.state.changes import Tracked
from primitives.state.container import State
from seep.cli.report_commands import read as read_report
from seep.operators.definition import Definition
from seep.protocol.cuts import Beginning
from seep.query.program import Resume
from seep.reports.page import page
from seep.sinks.spool import SinkSpool as Shown
from seep.storage.layout import KINDS, FenceKey, RunKey, SuccessionKey, key_of
from seep.storage.local import LocalStore
from seep.storage.store import BlobStore
from seep.testing import InProcess
from tests.golden import queries, write
from tests.golden.cuts import StoredCuts, catalogue_of

HERE = Path(__file__).parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/state.zip"))


class Golden(NamedTuple):
    """The golden state of a version, unpacked."""

    place: Path
    expected: dict[str, Any]

    @property
    def store(self) -> BlobStore:
        return LocalStore(self.place / "storage")


@pytest.fixture(scope="module", params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return unpacked(HERE / request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def written_now(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """What this version writes."""
    write.write(folder := tmp_path_factory.mktemp("written") / "now")
    return unpacked(folder, tmp_path_factory.mktemp("now"))


def unpacked(folder: Path, place: Path) -> Golden:
    with zipfile.ZipFile(folder / "state.zip") as archive:
        archive.extractall(place)
    return Golden(place, json.loads((folder / "expected.json").read_text(encoding="utf-8")))


# --- what every version has written -----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", write.QUERIES)
def test_every_container_has_what_it_had(golden: Golden, query: str) -> None:
    made, _ = write.QUERIES[query]
    program, store = made().compile(), golden.store
    for id, expected in golden.expected["contents"][query]["checkpoints"].items():
        found = write.contents(program, catalogue_of(store, query).standing(int(id)), store)
        for operator, containers in expected.items():
            assert {name: found[operator].get(name) for name in containers} == containers, operator


def test_the_state_is_the_same_however_many_instances_share_it(golden: Golden) -> None:
    store, expected = golden.store, golden.expected["contents"]["containers"]["checkpoints"]["2"]
    manifest = catalogue_of(store, "containers").standing(2)
    found = write.contents(queries.containers().compile(), manifest, store, shares=3)
    everything = {name: found["everything"].get(name) for name in expected["everything"]}
    assert everything == expected["everything"]


@pytest.mark.parametrize("query", write.QUERIES)
def test_a_query_goes_on_from_the_state_as_it_did(golden: Golden, query: str) -> None:
    made, _ = write.QUERIES[query]
    expected = golden.expected["contents"][query]["outputs"]
    found = write.outputs_after(made(), golden.store, shares=3)
    assert {sink: found.get(sink) for sink in expected} == expected


@pytest.mark.parametrize("codec", Compression)
def test_blobs_of_every_codec_are_read(golden: Golden, codec: Compression) -> None:
    query, store = queries.small(f"codec-{codec}"), golden.store
    (manifest,) = catalogue_of(store, query.name).complete()
    assert write.contents(query.compile(), manifest, store) == golden.expected["codecs"][codec]


def test_a_run_goes_on_where_files_were_read_and_written(golden: Golden) -> None:
    expected = dict(golden.expected["files"])
    manifest = catalogue_of(golden.store, "files").latest()
    assert manifest is not None
    shown = Shown(golden.place / "outputs" / "spark")
    assert (shown.shown, shown.taken) == (expected.pop("shown"), expected.pop("taken"))
    beginning = Beginning(manifest.epoch, {}, manifest.generation + 1)
    resume = Resume(manifest.id, beginning, dict(_noted(manifest.notes, "sinks")), manifest.pushed, manifest.ended)
    program = queries.files(golden.place).compile(resume=resume)
    assert {name: source.content for name, (source, _) in program.sources.items()} == _noted(manifest.notes, "sources")
    with InProcess(program, rows_per_epoch=6) as process:
        process._kernel.cuts = StoredCuts(process.program, golden.store)
        process.restart()
        process.run()
    assert write.written(golden.place) == expected


def _noted(notes: dict[str, Any], what: str) -> dict[str, Any]:
    return {name: note for name, note in notes[what].items() if note is not None}


def test_keys_are_in_the_slots_that_they_were_in(golden: Golden) -> None:
    assert {name: write.slots_of_keys().get(name) for name in golden.expected["slots"]} == golden.expected["slots"]


def test_what_spark_has_pushed_is_read(golden: Golden) -> None:
    assert write.pushed_lines(golden.store) == golden.expected["pushed"]


def test_what_runs_readers_and_cleaners_have_noted_is_read(golden: Golden) -> None:
    assert write.records_found(golden.store) == golden.expected["records"]


def test_a_report_is_read_and_drawn(golden: Golden) -> None:
    path = golden.place / "report.json"
    assert write.story_of(path) == golden.expected["report"]
    assert "wordcount" in page(read_report(path))


@pytest.mark.parametrize("name", VERSIONS)
def test_nothing_but_notes_of_an_old_query_stays_when_it_is_disposed_of(name: str, tmp_path: Path) -> None:
    store = unpacked(HERE / name, tmp_path).store
    for query in ("containers", "pushed"):
        catalogue_of(store, query).dispose_all()
        assert [type(key_of(key)) for key in store.list(f"{query}/")] == [RunKey]


# --- what is written --------------------------------------------------------------------------------------------------


def test_this_version_writes_what_its_golden_state_has(written_now: Golden) -> None:
    """If a container or a format is new, write one more directory: python -m tests.golden.write."""
    newest = json.loads((HERE / VERSIONS[-1] / "expected.json").read_text(encoding="utf-8"))
    assert written_now.expected == newest


def test_there_is_golden_state_of_this_version() -> None:
    """Before a release: python -m tests.golden.write."""
    assert any(name.partition("-")[0] == version(DISTRIBUTION) for name in VERSIONS)


@pytest.mark.parametrize("name", VERSIONS)
def test_golden_state_takes_less_than_a_mebibyte(name: str) -> None:
    assert sum(path.stat().st_size for path in (HERE / name).iterdir()) < 1 << 20


def made_by(query: Callable[[], seep.Query]) -> Iterator[tuple[Any, State]]:
    """The logic of each operator of a query, with each of its containers."""
    program = query().compile()
    for operator in program.operators:
        logic: Any = program.logic(operator)
        try:
            for container in write.containers_of(logic).values():
                yield logic, container
        finally:
            logic.close()


def subclasses(of: type) -> set[type]:
    return {each for direct in of.__subclasses__() for each in (direct, *subclasses(direct))}


def test_every_kind_of_container_is_among_what_is_written() -> None:
    for module in pkgutil.walk_packages(primitives.__path__, "primitives."):
        importlib.import_module(module.name)
    ours = {each for each in subclasses(Tracked) if each.__module__.split(".")[0] in ("primitives", "seep")}
    kinds = {each for each in ours if not inspect.isabstract(each)}
    made = {type(container) for query, _ in write.QUERIES.values() for _, container in made_by(query)}
    assert len(kinds) >= 8
    assert sorted(kind.__name__ for kind in kinds - made if not subclasses(kind)) == []  # what others share is no kind


def test_every_container_that_a_context_makes_is_among_what_is_written() -> None:
    offered = {
        name
        for name, method in inspect.getmembers(seep.Context, inspect.isfunction)
        if not name.startswith("_") and "aliases" in inspect.signature(method).parameters
    }
    source = inspect.getsource(queries.Everything.open)
    assert len(offered) >= 5
    assert sorted(name for name in offered if f"context.{name}(" not in source) == []


def test_every_operator_with_state_is_among_what_is_written() -> None:
    for module in pkgutil.walk_packages(seep.operators.__path__, "seep.operators."):
        importlib.import_module(module.name)
    kinds = {each for each in subclasses(Definition) if each.__module__.startswith("seep.")}
    stateful = {each.__name__ for each in kinds if getattr(each, "kind", None) is Kind.STATEFUL}
    used = {
        type(each).__name__ for query, _ in write.QUERIES.values() for each, _ in query().compile().operators.values()
    }
    assert len(stateful) >= 9
    assert sorted(stateful - used - {each.__name__ for each in kinds if inspect.isabstract(each)}) == []


def test_every_layout_of_columns_is_among_what_is_written() -> None:
    layouts = {layout_of(kind).name for kind, _ in (*queries.FRAME_COLUMNS.values(), *queries.ROW_COLUMNS.values())}
    assert layouts == {
        each.name for _, each in inspect.getmembers(column_bytes) if isinstance(each, column_bytes.ColumnLayout)
    }


def test_every_type_that_values_may_have_is_among_what_is_written() -> None:
    extensions = {type(each) for each in queries.OBJECTS} - {type(None), bool, float, str, bytes, list, dict}
    assert {each.__name__ for each in codec._TO_PARTS} <= {each.__name__ for each in extensions}
    assert {each.dtype.kind for each in queries.OBJECTS if isinstance(each, np.ndarray | np.generic)} >= set("iufMU")


def test_every_kind_of_key_that_outlives_a_run_is_among_what_is_written(written_now: Golden) -> None:
    assert {type(key_of(key)) for key in written_now.store.list()} == {*KINDS} - {FenceKey, SuccessionKey}
