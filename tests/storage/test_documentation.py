"""The example of docs/storage.md is one that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from formats.manifest import Manifest
from seep.storage.location import open_store

PAGE = Path(__file__).parents[2] / "docs" / "storage.md"


def test_the_program_on_the_page_stores_a_checkpoint() -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    try:
        exec(compile(program, str(PAGE), "exec"), names)
        assert isinstance(names["latest"], Manifest)
        assert [info.id for info in names["orders"].complete()] == [1]
    finally:
        store = open_store("memory://example")
        store.delete([*store.list()])
