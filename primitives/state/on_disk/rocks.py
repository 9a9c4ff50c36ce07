"""Wraps RocksDB for containers: rows of bytes ordered by key, written and read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from primitives.errors import EnvironmentFault, UserError, install_command
from primitives.state.files import disk_faults

#: Bits of the bloom filter for each key: one in a hundred reads of a file is useless.
_BLOOM_BITS = 10

#: Number of overlapping files before they are merged into the next level. With more files, less is rewritten, but more
#: files must be searched.
_RUNS = 8

#: Number of rows read at a time.
_BLOCK = 1 << 16

#: The library's own files in a directory; not needed to open it, as options are always given.
_NOT_NEEDED = (".log", "LOG", "LOCK")


class RowStore:
    """Sorted rows in the files of a directory; they need not survive the process, which checkpoints are for.

    Files are read through memory maps: often-read blocks stay in the page cache of the operating system, so a block
    cache would only hold them twice. Write buffers take up to `memory` bytes, and filters 10 bits a row. If files are
    read only once, they need not be compacted.
    """

    def __init__(self, directory: Path, memory: int, *, compacts: bool = True) -> None:
        self.directory = directory
        self._rocks = _library()
        self._options = self._tuned(memory)
        self._options.set_disable_auto_compactions(not compacts)
        self._unlogged = self._rocks.WriteOptions()
        self._unlogged.disable_wal = True
        with _faults(f"open {directory}"):
            self._rows = self._rocks.Rdict(str(directory), self._options)

    def _tuned(self, memory: int) -> Any:
        tables = self._rocks.BlockBasedOptions()
        tables.disable_cache()
        tables.set_bloom_filter(_BLOOM_BITS, False)
        tables.set_format_version(5)
        options = self._rocks.Options(raw_mode=True)  # bytes only; otherwise it would unpickle values
        options.create_if_missing(True)
        options.set_block_based_table_factory(tables)
        options.set_compression_type(self._rocks.DBCompressionType.none())  # maps are read uncopied
        options.set_allow_mmap_reads(True)
        buffer = max(memory // 2, 1 << 16)
        options.set_write_buffer_size(buffer)
        options.set_max_write_buffer_number(2)
        options.set_max_bytes_for_level_base(4 * buffer)  # as large as the level above, so that little is rewritten
        options.set_target_file_size_base(buffer)
        options.set_level_zero_file_num_compaction_trigger(_RUNS)
        options.set_max_open_files(-1)
        options.set_keep_log_file_num(1)
        return options

    # --- rows ---------------------------------------------------------------------------------------------------------

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the row of each key, or None; faster if keys ascend."""
        with _faults(f"read {len(keys)} rows from {self.directory}"):
            found: list[bytes | None] = self._rows.get(keys) if keys else []
            return found

    def put(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Writes all rows; twice as fast if keys ascend."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key, row in zip(keys, rows, strict=True):
            batch[key] = row
        self._write(batch, f"write {len(keys)} rows to {self.directory}")

    def delete(self, keys: Sequence[bytes]) -> None:
        """Deletes the rows of keys."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        self._write(batch, f"delete {len(keys)} rows in {self.directory}")

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Deletes the rows from one key to before another; the cost does not depend on their number."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        batch.delete_range(begin, end)
        self._write(batch, f"delete rows in {self.directory}")

    def _write(self, batch: Any, task: str) -> None:
        with _faults(task):
            self._rows.write(batch, self._unlogged)

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Returns keys and rows from one key to before another, some at a time."""
        options = self._rocks.ReadOptions()
        options.set_iterate_upper_bound(end)
        with _faults(f"read rows from {self.directory}"):
            items = self._rows.items(from_key=begin, read_opt=options)
            while block := list(islice(items, _BLOCK)):
                keys, rows = zip(*block, strict=True)
                yield list(keys), list(rows)

    # --- files --------------------------------------------------------------------------------------------------------

    def link(self, directory: Path) -> dict[str, int]:
        """Links all files of the rows into a new directory; returns their names and sizes. Linked files never change.

        While the store lives, a file of rows (.sst) with the same name is the same file.
        """
        with _faults(f"write rows to {self.directory}"):
            self._rows.flush()
        with _faults(f"link files of {self.directory} to {directory}"):
            self._rocks.Checkpoint(self._rows).create_checkpoint(str(directory))
        with disk_faults(f"list {directory}"):
            for path in directory.iterdir():
                if path.name.endswith(_NOT_NEEDED):
                    path.unlink()
            return {path.name: path.stat().st_size for path in sorted(directory.iterdir())}

    def close(self) -> None:
        """Closes the files."""
        with _faults(f"close {self.directory}"):
            self._rows.close()


def _library() -> ModuleType:
    try:
        import rocksdict
    except ImportError as reason:
        raise UserError(f"state on disk needs rocksdict, which is not installed: {install_command('disk')}") from reason
    return rocksdict


@contextmanager
def _faults(task: str) -> Iterator[None]:
    try:
        yield
    except Exception as reason:
        if type(reason) is not Exception:  # the library raises a plain Exception for RocksDB's own errors
            raise
        raise EnvironmentFault(
            f"cannot {task}: {reason}; see that the disk has space and is sound, then restore from a checkpoint"
        ) from reason
