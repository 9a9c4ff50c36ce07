"""FileChunk: the content of some slots of a container on disk, as files of rows, most of which never change."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.files import disk_faults, link_or_copy, write_file

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class Links:
    """A directory for hard links, which is deleted when nothing refers to this object any more."""

    def __init__(self, beside: Path) -> None:
        with disk_faults(f"link files in {beside.parent}"):
            root = Path(tempfile.mkdtemp(prefix=f"{beside.name}-", dir=beside.parent))
        self.directory = root / "files"  #: created when needed
        weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)


@dataclass(frozen=True, slots=True, eq=False)
class FileChunk:
    """All rows of some slots, in files; earlier content of these slots is void.

    The chunk is full or incremental by the files that it contains. An incremental chunk lacks the files that a reader
    with the state of its base has already (see `completed`). The files also hold rows of other slots, which must be
    ignored: so selecting slots costs nothing, and saves nothing.
    """

    like: Chunk  #: a chunk of the same container without rows
    slots: SlotSet
    rows_in_slot: NDArray[np.int64]  #: number of each slot's rows in the files
    sizes: Mapping[str, int]  #: sizes of all files, by name
    contents: Mapping[str, pa.Buffer]  #: contents of the new files; they may be mapped, so that they take no memory
    links: Links | None = None  #: links to all files, in the process that they come from

    def __post_init__(self) -> None:
        self._check_description()
        for name, size in self.sizes.items():
            if not _NAME.fullmatch(name) or size < 0:
                raise EnvironmentFault(f"state '{self.name}' cannot be in a file {name!r} of {size} bytes")
        for name, content in self.contents.items():
            if content.size != self.sizes.get(name):
                raise EnvironmentFault(
                    f"file {name} of state '{self.name}' has {content.size} bytes where {self.sizes.get(name)} belong "
                    "to it; fetch another copy"
                )

    def _check_description(self) -> None:
        slots, rows = 1 << self.like.slot_bits, self.rows_in_slot
        if (
            len(self.like.rows)
            or rows.shape != (slots,)
            or rows.min() < 0
            or len(self.slots.mask(self.like.slot_bits)) != slots
        ):
            raise EnvironmentFault(f"the files of state '{self.name}' are described in a way that makes no sense")

    @property
    def name(self) -> str:
        return self.like.name

    @property
    def nbytes(self) -> int:
        """Bytes of the files that it contains."""
        return sum(content.size for content in self.contents.values())

    @property
    def row_bytes(self) -> float:
        """Average bytes of a row."""
        return sum(self.sizes.values()) / max(int(self.rows_in_slot.sum()), 1)

    @property
    def missing(self) -> list[str]:
        """Names of the files that the chunk lacks."""
        return [] if self.links else sorted(self.sizes.keys() - self.contents.keys())

    def count_in(self, slots: SlotSet) -> int:
        """Returns the number of rows of some slots."""
        return int(self.rows_in_slot[slots.mask(self.like.slot_bits)].sum())

    def select(self, slots: SlotSet) -> FileChunk:
        """Returns the part for `slots`, which has the same files."""
        return replace(self, slots=self.slots & slots)

    def merge(self, later: Sequence[FileChunk]) -> FileChunk:
        """Returns the last chunk, with the files that this one and the others contain."""
        return later[-1].completed([self, *later[:-1]]) if later else self

    def completed(self, earlier: Sequence[FileChunk]) -> FileChunk:
        """Returns this chunk with its missing files taken from `earlier` ones; the last one that has a file counts."""
        contents = dict(self.contents)
        for chunk in reversed(earlier):
            for name, content in chunk.contents.items():
                if self.sizes.get(name) == content.size:
                    contents.setdefault(name, content)
        return replace(self, contents=contents)

    def check_whole(self) -> None:
        """Raises EnvironmentFault with their names if some files are missing."""
        if missing := self.missing:
            named = ", ".join([*missing[:3], "…"] if len(missing) > 3 else missing)
            raise EnvironmentFault(
                f"{len(missing)} of the {len(self.sizes)} files of state '{self.name}' are not here ({named}): what "
                "the checkpoint builds on was lost; take a full one"
            )

    def place_in(self, directory: Path) -> None:
        """Puts all files into an empty directory; copies nothing if both are on the same file system."""
        self.check_whole()
        with disk_faults(f"take over the files of state '{self.name}' to {directory}"):
            for name in self.sizes:
                if self.links:
                    link_or_copy(self.links.directory / name, directory / name)
                else:
                    write_file(directory / name, self.contents[name])
