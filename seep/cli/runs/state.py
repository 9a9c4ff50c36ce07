"""`seep state get`, `rows` and `sql`: the state of a current run, by requests to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from primitives.errors import UserError
from seep.cli.display.output import print_json, print_line
from seep.cli.display.tables import TextTable, show
from seep.reports import figures
from seep.running.run_client import RunClient


def show_key(run: RunClient, operator: str, key: Sequence[str], container: str | None, *, as_json: bool) -> None:
    """Prints the rows of one key; raises UserError if there are none."""
    answer = run.tell("state", operator=operator, key=list(key), container=container)
    if as_json:
        print_json(answer)
    elif answer["rows"]:
        _show_rows(answer)
    if not answer["rows"]:
        raise UserError(f"{answer['container']} of {operator} has nothing for the key {', '.join(key)}")


def show_rows(run: RunClient, operator: str, container: str | None, offset: int, limit: int, *, as_json: bool) -> None:
    """Prints some rows of a container, and how many it has."""
    answer = run.tell("state", operator=operator, container=container, offset=offset, limit=limit)
    if as_json:
        print_json(answer)
        return
    shown, total = len(answer["rows"]), answer["total"]
    place = f"rows {offset + 1:,} to {offset + shown:,} of {total:,}" if shown else f"no row from {offset + 1:,} on"
    print_line(f"{answer['container']} of {operator} after epoch {answer['epoch']:,}: {place}")
    _show_rows(answer)
    others = [name for name in answer["containers"] if name != answer["container"]]
    if others:
        print_line(f"other containers: {', '.join(others)}; see --container")


def _show_rows(answer: Mapping[str, Any]) -> None:
    columns = [each["name"] for each in answer["containers"][answer["container"]]["columns"]]
    _show(columns, [[row.get(name) for name in columns] for row in answer["rows"]])


def show_query(run: RunClient, operator: str, sql: str, limit: int, *, as_json: bool) -> None:
    """Prints the result of an SQL query over the state of an operator."""
    answer = run.tell("sql", operator=operator, sql=sql, limit=limit)
    if as_json:
        print_json(answer)
        return
    _show([each["name"] for each in answer["columns"]], answer["rows"])
    more = ", and there are more; see --limit" if answer["more"] else ""
    took = f"after epoch {answer['epoch']:,}, in {figures.time(answer['seconds'])}"
    print_line(f"{figures.of(len(answer['rows']), 'row')}{more}; {took}")


def _show(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    show(TextTable(columns, [[_cell(value) for value in row] for row in rows]), Console())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
