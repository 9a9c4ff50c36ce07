"""Writes files that are there whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from primitives.errors import EnvironmentFault


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary name next to the file; renames the complete file at the end.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "words.txt")
    >>> with whole_file(path) as partial:
    ...     _ = partial.write_text("all of them"), path.exists()
    >>> path.read_text(), [each.name for each in path.parent.iterdir()]
    ('all of them', ['words.txt'])
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as reason:
        raise EnvironmentFault(f"{path} cannot be written: {reason.strerror or reason}") from reason
    finally:
        partial.unlink(missing_ok=True)
