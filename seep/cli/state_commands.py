"""The work of the commands of `seep state`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer
from rich.console import Console

from formats.manifest import Manifest
from formats.settings import imported
from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.cli.display.tables import TextTable, show
from seep.config.files import read_policy
from seep.inspection.comparing import Difference, diff
from seep.inspection.container import StoredContainer
from seep.inspection.exporting import export
from seep.inspection.filling import Filling, Skew, skew, stats
from seep.inspection.listing import catalogue_in, nbytes, opened, queries_in
from seep.inspection.live import LIVE, Live
from seep.inspection.rewriting import rewrite
from seep.inspection.stored import Stored
from seep.reports import figures
from seep.rows.readable import plain_rows, value_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore

if TYPE_CHECKING:
    from seep.cli.state import Where


def storage_of(location: str | None, policy: Path | None) -> StorageSettings:
    """Returns the settings of the storage in a policy file, at a location, or both."""
    settings = read_policy(policy).storage if policy else StorageSettings()
    if location is not None:
        settings = settings.model_copy(update={"location": location})
    if settings.location is None:
        raise UserError("say where the checkpoints are: with --storage, or --policy and a file that has storage")
    return settings


def stored(where: Where, checkpoint: str, operator: str | None = None) -> Stored:
    """Opens the checkpoint that a command names, or the state of the running query (of one operator)."""
    if checkpoint == LIVE:
        return Live.of(where.query, operator)
    return Stored.open(storage_of(where.storage, where.policy), where.query, checkpoint)


# --- ls ---------------------------------------------------------------------------------------------------------------


def list_queries(storage: StorageSettings, as_json: bool) -> None:
    store = opened(storage)
    found = [(query, catalogue_in(store, query).complete()) for query in queries_in(store)]
    if not found:
        raise UserError(
            f"{store.name} has no checkpoints of any query; say where a run has them, as its --storage does"
        )
    rows = [
        {"query": query, "checkpoints": len(complete), "latest": complete[0].id if complete else None}
        for query, complete in found
    ]
    _print_rows(rows, as_json)


def list_checkpoints(storage: StorageSettings, query: str, as_json: bool) -> None:
    store = opened(storage)
    catalogue = catalogue_in(store, query)
    complete, damaged = catalogue.complete(), catalogue.damaged()
    if not complete and not damaged:
        raise UserError(f"{store.name} has no complete checkpoint of query {query!r}; it has {_there(store)}")
    abandoned = complete[0].abandoned if complete else ()
    _print_rows([_checkpoint_row(each, as_json, each.id in abandoned) for each in complete], as_json)
    for reason in damaged.values():
        typer.echo(reason, err=True)


def _there(store: BlobStore) -> str:
    return ", ".join(queries_in(store)) or "nothing"


def _checkpoint_row(manifest: Manifest, as_json: bool, abandoned: bool = False) -> dict[str, Any]:
    """Returns a row for a checkpoint: numbers for programs, or text for people."""
    size, at = nbytes(manifest), datetime.fromtimestamp(manifest.created, UTC)
    words = ["savepoint"] * manifest.savepoint + ["abandoned"] * abandoned
    return {
        "id": manifest.id,
        "epoch": manifest.epoch,
        "time": at.isoformat() if as_json else f"{at:%Y-%m-%d %H:%M:%S} UTC",
        "savepoint": manifest.savepoint if as_json else ", ".join(words),
        "bytes": size if as_json else figures.size(size),
    } | ({"abandoned": abandoned} if as_json else {})


# --- show -------------------------------------------------------------------------------------------------------------


def show_checkpoint(found: Stored, as_json: bool) -> None:
    """Prints the contents of a checkpoint by its manifest; reads nothing else."""
    row = _checkpoint_row(found.manifest, as_json)
    if not as_json:
        words = [str(found), f"epoch {row['epoch']}", row["time"], row["bytes"], row["savepoint"]]
        typer.echo(", ".join(filter(None, words)))
    containers = [found.container(each, name) for each in found.operators() for name in found.containers(each)]
    _print_rows([_container_row(found, each, as_json) for each in containers], as_json)


def _container_row(found: Stored, container: StoredContainer, as_json: bool) -> dict[str, Any]:
    component = found.component(container.operator)
    size = sum(blob.index.size for blob in container.blobs)
    columns = {field.name: str(field.type) for field in container.schema}
    return {
        "operator": container.operator,
        "container": container.name,
        "instances": component.parallelism,
        "slots": 1 << component.slot_bits,
        "key": list(container.like.keys) if as_json else ", ".join(container.like.keys),
        "columns": columns if as_json else ", ".join(f"{name} {kind}" for name, kind in columns.items()),
        "bytes": size if as_json else figures.size(size),
    }


def show_rows(
    found: Stored,
    operator: str,
    container: str | None,
    keys: Sequence[str],
    slots: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Prints keys and values, by slot."""
    names = found.containers(operator) if container is None else [container]
    shown = []
    for name in names:
        read = found.container(operator, name)
        some = None if slots is None else slots_in(slots)
        rows = read.rows(some, key_in(keys, read)) if keys else read.head(limit + 1, some)
        shown.append((read, rows))
    if as_json:
        _print_json([_rows_as_json(read, rows, limit) for read, rows in shown])
        return
    for read, rows in shown:
        _show_rows(read, rows, limit)


def _rows_as_json(container: StoredContainer, rows: pa.RecordBatch, limit: int) -> dict[str, Any]:
    some = {"rows": plain_rows(rows[:limit]), "more": len(rows) > limit}
    return {"operator": container.operator, "container": container.name, **some}


def _show_rows(container: StoredContainer, rows: pa.RecordBatch, limit: int) -> None:
    typer.echo(f"{container.name} of {container.operator}")
    _show([*container.schema.names], plain_rows(rows[:limit]))
    if len(rows) > limit:
        typer.echo("… and more; see --limit")


def slots_in(text: str) -> SlotSet:
    """Reads slots from the command line.

    >>> slots_in("0-3,7")
    SlotSet(0-3, 7)
    """
    try:
        bounds = [[int(slot) for slot in run.split("-")] for run in text.split(",")]
        return SlotSet.from_json([[run[0], *run[1:]] if len(run) > 1 else run * 2 for run in bounds])
    except (ValueError, UserError) as reason:
        raise UserError(f"--slots {text!r}: write such as 0-15,20 ({reason})") from reason


def key_in(given: Sequence[str], container: StoredContainer) -> dict[str, Any]:
    """Reads a key from `column=value`, each value by the type of its column; `null` is null except in text columns."""
    texts, types = dict[str, str](), container.key_types
    for each in given:
        name, equals, texts[name] = each.partition("=")
        if not equals:
            raise UserError(f"--key {each!r}: write a column and its value, such as {next(iter(types))}=…")
    return {name: _value(name, text, types[name]) if name in types else text for name, text in texts.items()}


def _value(name: str, text: str, kind: pa.DataType) -> Any:
    try:
        return value_of(text, kind)
    except ValueError as reason:
        raise UserError(f"--key {name}={text}: the column is of type {kind}, and this is none") from reason


# --- stats ------------------------------------------------------------------------------------------------------------


def show_stats(found: Stored, operator: str | None, container: str | None, limit: int, as_json: bool) -> None:
    """Prints the rows and bytes of slots."""
    operators = found.operators() if operator is None else [operator]
    fillings = [filling for each in operators for filling in stats(found, each, container)]
    if as_json:
        _print_json([_slot_sizes_as_json(each) for each in fillings])
        return
    for each in fillings:
        _show_filling(each, limit)


def _slot_sizes_as_json(filling: Filling) -> dict[str, Any]:
    full = filling.largest(len(filling.rows))
    return {
        "operator": filling.operator,
        "container": filling.container,
        "rows": int(filling.rows.sum()),
        "bytes": int(filling.nbytes.sum()),
        "stored": filling.stored,
        "deltas": filling.deltas,
        "skew": {"rows": _skew_as_json(skew(filling.rows)), "bytes": _skew_as_json(skew(filling.nbytes))},
        "slots": [{"slot": slot, "rows": rows, "bytes": size} for slot, rows, size in sorted(full)],
    }


def _skew_as_json(found: Skew) -> dict[str, Any]:
    return {"max_to_mean": found.ratio, "gini": found.gini, "histogram": found.histogram}


def _show_filling(filling: Filling, limit: int) -> None:
    found = skew(filling.nbytes)
    typer.echo(
        f"{filling.container} of {filling.operator}: {figures.of(int(filling.rows.sum()), 'row')}, "
        f"{figures.size(int(filling.nbytes.sum()))} in {figures.of(len(filling.rows), 'slot')}; stored as "
        f"{figures.size(filling.stored)} with up to {figures.of(filling.deltas, 'delta')}"
    )
    typer.echo(f"the fullest slot has {found.ratio:.2f} x the mean; Gini {found.gini:.2f}")
    _show(["slots", "bytes"], [{"slots": count, "bytes": words} for words, count in found.histogram.items()])
    if largest := filling.largest(limit):
        rows = [{"slot": slot, "rows": rows, "bytes": figures.size(size)} for slot, rows, size in largest]
        _show(["slot", "rows", "bytes"], rows)


# --- diff -------------------------------------------------------------------------------------------------------------


def show_differences(
    before: Stored, after: Stored, operator: str | None, container: str | None, limit: int, as_json: bool
) -> None:
    """Prints what has changed."""
    operators = dict.fromkeys([*before.operators(), *after.operators()]) if operator is None else [operator]
    found = [each for name in operators for each in diff(before, after, name, container)]
    if as_json:
        _print_json([_difference_as_json(each, limit) for each in found])
        return
    for each in found:
        _show_difference(each, limit)


def _difference_as_json(found: Difference, limit: int) -> dict[str, Any]:
    pairs = zip(plain_rows(found.before[:limit]), plain_rows(found.after[:limit]), strict=True)
    return {
        "operator": found.operator,
        "container": found.container,
        "counts": {"added": len(found.added), "removed": len(found.removed), "changed": len(found.after)},
        "added": plain_rows(found.added[:limit]),
        "removed": plain_rows(found.removed[:limit]),
        "changed": [{"before": old, "after": new} for old, new in pairs],
    }


def _show_difference(found: Difference, limit: int) -> None:
    typer.echo(
        f"{found.container} of {found.operator}: {len(found.added):,} added, {len(found.removed):,} removed, "
        f"{len(found.after):,} changed"
    )
    changed = zip(plain_rows(found.before[:limit]), plain_rows(found.after[:limit]), strict=True)
    rows = [{"": "+", **row} for row in plain_rows(found.added[:limit])]
    rows += [{"": "-", **row} for row in plain_rows(found.removed[:limit])]
    rows += [{"": "~", **_change(old, new)} for old, new in changed]
    if rows:
        _show(["", *found.after.schema.names], rows[:limit])
    if len(found.added) + len(found.removed) + len(found.after) > limit:
        typer.echo("… and more; see --limit")


def _change(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {name: new[name] if old[name] == new[name] else f"{_cell(old[name])} → {_cell(new[name])}" for name in new}


# --- export, rewrite --------------------------------------------------------------------------------------------------


def export_rows(found: Stored, operator: str, container: str | None, slots: str | None, path: Path) -> None:
    some = None if slots is None else slots_in(slots)
    count = export(found.container(operator, container), path, slots=some)
    typer.echo(f"{figures.of(count, 'row')} written to {path}")


def rewrite_state(where: Where, function: str, checkpoint: str, operators: list[str] | None) -> None:
    storage = storage_of(where.storage, where.policy)
    work = imported(function, "--function")
    if not callable(work):
        raise UserError(f"--function is {function!r}, which is a {type(work).__name__}, and no function")
    made = rewrite(storage, where.query, work, checkpoint, operators=operators or None, codec=storage.codec)
    typer.echo(f"savepoint {made} of {where.query}")


# --- dispose ----------------------------------------------------------------------------------------------------------


def check_disposed(checkpoints: Sequence[int], everything: bool) -> None:
    """Raises UserError unless exactly one choice of what to remove is given."""
    if bool(checkpoints) == everything:
        raise UserError("say what is to be removed: numbers of checkpoints (see `seep state ls`), or --all")


def dispose_of(where: Where, checkpoints: Sequence[int], everything: bool) -> None:
    store = opened(storage_of(where.storage, where.policy))
    if everything and where.query not in queries_in(store):
        raise UserError(f"{store.name} has nothing of query {where.query!r}; it has {_there(store)}")
    catalogue = catalogue_in(store, where.query)
    cleaned = catalogue.dispose_all() if everything else catalogue.dispose(checkpoints)
    gone = ", ".join(map(str, cleaned.disposed)) or "none"
    typer.echo(f"removed from {store.name}: checkpoints of {where.query}: {gone}; {figures.of(cleaned.blobs, 'blob')}")


# --- output -----------------------------------------------------------------------------------------------------------


def _print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Prints rows that all have the same columns."""
    if as_json:
        _print_json(rows)
    elif rows:
        _show([*rows[0]], rows)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


def _show(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    show(TextTable(columns, [[_cell(row[name]) for name in columns] for row in rows]), Console())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
