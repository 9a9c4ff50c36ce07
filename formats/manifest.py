"""Manifest: the parts of a checkpoint in storage, and the bytes of them that an instance needs.

A container's state is a list of blobs, which take effect in order. Each speaks only for the slots that its writer
owned at that time: its data of other slots is ignored. So instances can write without knowing of each other, slots
may move in between, and any number of instances, with any slots, can read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    PlainSerializer,
    PlainValidator,
    PositiveInt,
    ValidationError,
    model_validator,
)

from formats.avro_file import Damaged
from formats.blob_index import BlobIndex, ByteRange
from formats.renaming import renamed
from formats.settings import Section
from primitives.errors import InternalError, UserError
from primitives.slots import MAX_SLOT_BITS, SlotSet


def _slots(given: Any) -> SlotSet:
    if isinstance(given, SlotSet):
        return given
    try:
        return SlotSet.from_json(given)
    except (UserError, TypeError) as reason:
        raise ValueError(str(reason)) from reason


#: In JSON, the set is a list of runs.
Slots = Annotated[SlotSet, PlainValidator(_slots), PlainSerializer(SlotSet.to_json)]
SlotBits = Annotated[int, Field(ge=0, le=MAX_SLOT_BITS)]


class ManifestSection(Section):
    """The base class of all parts of a manifest."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


# --- blobs ------------------------------------------------------------------------------------------------------------


class BlobRef(ManifestSection):
    """A blob that a checkpoint refers to."""

    key: str
    epoch: int  #: the epoch of the checkpoint for which it was written
    slots: Slots  #: the slots that it speaks for
    replaced: Slots  #: the slots for which earlier blobs are ignored
    index: BlobIndex

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.replaced <= self.slots:
            raise ValueError(f"blob {self.key} replaces {self.replaced - self.slots}, for which it does not speak")
        return self

    @property
    def is_delta(self) -> bool:
        """Whether earlier blobs are needed too."""
        return not self.slots <= self.replaced

    def touches(self, slots: SlotSet) -> bool:
        """Returns whether the blob may have data or removals of any of `slots`."""
        return any(True for _ in self.index.where(slots & self.slots))


class BlobReading(NamedTuple):
    """The slots to read of one blob."""

    blob: BlobRef
    slots: SlotSet

    @property
    def ranges(self) -> list[ByteRange]:
        """The byte ranges to read, for `read_blob`."""
        return self.blob.index.ranges(self.slots)

    @property
    def nbytes(self) -> int:
        """The number of bytes in the blocks to read."""
        return sum(block.length for block, _ in self.blob.index.where(self.slots))


def readings(blobs: Sequence[BlobRef], slots: SlotSet) -> list[BlobReading]:
    """Returns the parts of blobs to read for a container's state of `slots`, in the order in which they take effect.

    Data that a later blob replaces is not read. Law: instances that share out all slots, however many they are, read
    each slot once, and together the whole state.
    """
    found, wanted = [], slots
    for blob in reversed(blobs):
        mine = wanted & blob.slots
        if blob.touches(mine):
            found.append(BlobReading(blob, mine))
        wanted -= blob.replaced & mine
    if wanted:
        raise InternalError(f"no blob among {[blob.key for blob in blobs]} holds all that there is of {wanted}")
    return found[::-1]


def live_blobs(blobs: Sequence[BlobRef]) -> tuple[BlobRef, ...]:
    """Returns, in order, the blobs with data that no later blob replaces."""
    kept: list[BlobRef] = []
    done = SlotSet.empty()
    for blob in reversed(blobs):
        if blob.touches(blob.slots - done):
            kept.append(blob)
        done |= blob.replaced
    return tuple(kept[::-1])


class ReadCost(NamedTuple):
    """The amount of data to read for some slots."""

    deltas: int  #: the most deltas of any slot
    base_bytes: int
    delta_bytes: int

    def is_long(self, max_deltas: int) -> bool:
        """Returns whether to write all state next time: there are many deltas, or most of the data is in deltas."""
        return self.deltas >= max_deltas or self.delta_bytes > self.base_bytes


def chain_of(blobs: Sequence[BlobRef], slots: SlotSet) -> ReadCost:
    """Returns how much of a container's data is to be read for `slots`."""
    found = readings(blobs, slots)
    deltas = [reading for reading in found if reading.blob.is_delta]
    counts = np.zeros(int(slots.array[-1]) + 1 if slots else 1, np.int64)
    for reading in deltas:
        counts[reading.slots.array] += 1
    delta_bytes = sum(reading.nbytes for reading in deltas)
    return ReadCost(int(counts.max()), sum(reading.nbytes for reading in found) - delta_bytes, delta_bytes)


# --- components -------------------------------------------------------------------------------------------------------


class ContainerState(ManifestSection):
    """The blobs and schema of an operator's container."""

    avro_schema: dict[str, JsonValue]  #: the schema of all its blobs
    blobs: tuple[BlobRef, ...]  #: in the order in which they take effect


class ManifestPart(ManifestSection):
    """The record of the blobs that one instance has written for a checkpoint."""

    operator: str
    instance: NonNegativeInt
    epoch: int
    base: int | None  #: the epoch since which it has the changes; None if it has all state
    slots: Slots  #: the slots that it owned after the epoch
    slot_bits: SlotBits
    containers: dict[str, ContainerState] = Field(default_factory=dict)


class Component(ManifestSection):
    """An operator in a manifest, with the blobs of all its instances."""

    epoch: int
    parallelism: PositiveInt
    slot_bits: SlotBits
    containers: dict[str, ContainerState] = Field(default_factory=dict)
    extras: tuple[JsonValue, ...] = Field(default=(), exclude=True)  #: in earlier manifests; read, not used

    @model_validator(mode="after")
    def _check(self) -> Self:
        every = SlotSet.full(self.slot_bits)
        for name, container in self.containers.items():
            try:
                readings(container.blobs, every)
            except InternalError as reason:
                raise ValueError(f"container '{name}': {reason}") from reason
        return self

    @property
    def blobs(self) -> frozenset[str]:
        """The keys of all blobs that it refers to."""
        return frozenset(blob.key for blob in self.every_blob())

    def every_blob(self) -> Iterator[BlobRef]:
        """Yields the blobs of all containers."""
        for container in self.containers.values():
            yield from container.blobs

    def needed(self, slots: SlotSet) -> dict[str, list[BlobReading]]:
        """Returns for each container the parts of blobs to read for the state of `slots`; see `readings`."""
        return {name: readings(container.blobs, slots) for name, container in self.containers.items()}

    def needs_full(self, slots: SlotSet, max_deltas: int) -> bool:
        """Returns whether the owner of `slots` should write all of its state next time, instead of the changes."""
        return any(chain_of(container.blobs, slots).is_long(max_deltas) for container in self.containers.values())


def component_of(parts: Sequence[ManifestPart], previous: Component | None = None) -> Component:
    """Returns the component made of all instances' parts, and of the blobs of the `previous` checkpoint that they need.

    >>> part = ManifestPart(operator="counter", instance=0, epoch=7, base=None, slots=SlotSet.full(3), slot_bits=3)
    >>> component_of([part]).parallelism
    1
    """
    first = parts[0]
    _check_together(parts)
    for part in parts:
        if part.base is not None and (previous is None or part.base != previous.epoch):
            raise InternalError(
                f"{part.operator}[{part.instance}] tells what changed since epoch {part.base}, and the checkpoint "
                f"before is {'not there' if previous is None else f'of epoch {previous.epoch}'}"
            )
    earlier = previous.containers if previous and any(part.base is not None for part in parts) else {}
    names = dict.fromkeys(name for part in parts for name in part.containers)
    return Component(
        epoch=first.epoch,
        parallelism=len(parts),
        slot_bits=first.slot_bits,
        containers={name: _together(name, parts, earlier) for name in names},
    )


def _check_together(parts: Sequence[ManifestPart]) -> None:
    first, covered = parts[0], SlotSet.empty()
    for part in parts:
        who = f"{part.operator}[{part.instance}]"
        if (part.operator, part.epoch, part.slot_bits) != (first.operator, first.epoch, first.slot_bits):
            raise InternalError(f"{who} at epoch {part.epoch} is no part of {first.operator} at epoch {first.epoch}")
        if part.containers.keys() != first.containers.keys():
            raise InternalError(f"{who} has state {[*part.containers]}, and another one has {[*first.containers]}")
        if not part.slots.isdisjoint(covered):
            raise InternalError(f"{who} and another instance both have {part.slots & covered}")
        covered |= part.slots
    if first.containers and covered != SlotSet.full(first.slot_bits):
        raise InternalError(f"nobody has {SlotSet.full(first.slot_bits) - covered} of {first.operator}")


def _together(name: str, parts: Sequence[ManifestPart], earlier: Mapping[str, ContainerState]) -> ContainerState:
    mine = [part.containers[name] for part in parts]
    chain = [earlier[name]] if name in earlier else []
    for container in (*chain, *mine):
        if container.avro_schema != mine[0].avro_schema:
            raise InternalError(f"container '{name}' has blobs of two schemas; write its state in full when it changes")
    blobs = [blob for container in (*chain, *mine) for blob in container.blobs]
    return ContainerState(avro_schema=mine[0].avro_schema, blobs=live_blobs(blobs))


# --- manifests --------------------------------------------------------------------------------------------------------


class Manifest(ManifestSection):
    """A checkpoint of a query: the state of every operator after the same epoch, and the positions of its sources."""

    format: Literal[1] = 1
    query: str
    id: NonNegativeInt
    epoch: int
    created: float  #: seconds since 1970
    savepoint: bool = False
    generation: NonNegativeInt = 0  #: the number of the run that wrote it, in its line
    sources: dict[str, dict[str, JsonValue]] = Field(
        default_factory=dict
    )  #: by operator and partition: the positions to continue from
    components: dict[str, Component] = Field(default_factory=dict)
    watermarks: dict[str, int] = Field(default_factory=dict, exclude=True)  #: in earlier manifests; read, not written
    pushed: dict[str, int] = Field(default_factory=dict)  #: by source that Spark pushes to: the first batch of its line
    ended: bool = False  #: all sources had been read to their end
    abandoned: tuple[int, ...] = ()  #: checkpoints of this query that are later than one to which a run went back
    notes: dict[str, JsonValue] = Field(default_factory=dict)  #: notes of the runtime for later runs

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, component in self.components.items():
            if component.epoch != self.epoch:
                raise ValueError(f"operator '{name}' is of epoch {component.epoch}, and the checkpoint of {self.epoch}")
        return self

    @property
    def blobs(self) -> frozenset[str]:
        """The keys of all blobs that it refers to, including blobs of earlier checkpoints."""
        return frozenset[str]().union(*(component.blobs for component in self.components.values()))

    @property
    def files(self) -> dict[str, int]:
        """The sizes of all blobs that it refers to, by key."""
        return {blob.key: blob.index.size for each in self.components.values() for blob in each.every_blob()}

    def to_json(self) -> bytes:
        """Returns the bytes of the manifest, which `read_manifest` reads."""
        return self.model_dump_json().encode()

    def renamed(self, aliases: Mapping[str, Sequence[str]]) -> Manifest:
        """Returns this manifest for a query whose operators have new names, with their old names as aliases."""
        update = {
            "components": renamed("operator", self.components, aliases),
            "sources": renamed("source", self.sources, aliases),
        }
        known = self.notes.get("sources")
        if isinstance(known, dict):
            update["notes"] = {**self.notes, "sources": renamed("source", known, aliases)}
        return self.model_copy(update=update)

    def check_operators(self, stateful: Iterable[str], *, allow_dropped: bool = False) -> frozenset[str]:
        """Returns the operators without stored state, which begin empty; raises UserError if others lose theirs."""
        declared = frozenset(stateful)
        stored = {name for name, component in self.components.items() if any(component.every_blob())}
        dropped = sorted(stored - declared)
        if dropped and not allow_dropped:
            raise UserError(
                f"checkpoint {self.id} of {self.query} has state of {', '.join(dropped)}, which the query does not "
                "have: was an operator renamed or removed? Name the old one among its aliases, or allow "
                "its state to be dropped"
            )
        return declared - self.components.keys()


def read_manifest(data: bytes | memoryview, name: str) -> Manifest:
    """Reads a manifest that `to_json` wrote; raises EnvironmentFault with its `name` if the data is anything else."""
    try:
        return Manifest.model_validate_json(bytes(data), strict=True)
    except ValidationError as reason:
        first = reason.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise Damaged(f"{name} is not a manifest that this version can read: {where}: {first['msg']}") from reason


def manifests_of(query: str) -> Callable[[bytes, str], Manifest]:
    """Returns `read_manifest` for the manifests of one query: it refuses a manifest of another query."""

    def read(data: bytes, name: str) -> Manifest:
        manifest = read_manifest(data, name)
        if manifest.query != query:
            raise Damaged(f"{name} is damaged: its manifest is one of query {manifest.query!r}")
        return manifest

    return read
