"""persist_state: a checkpoint's processing state as blobs for a storage outside the query, and back.

At a cut of the same epoch through the whole query no buffer state is needed: every receiver is at that epoch too, and
the sources read on from there. So β is left out, and only a full checkpoint can be persisted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from primitives.checkpoint import Checkpoint
from primitives.chunk import Chunk, read_chunk, write_chunk
from primitives.errors import EnvironmentFault, InternalError
from primitives.graph import InstanceId
from primitives.slots import SlotSet

_MANIFEST = "manifest.json"


def persist_state(checkpoint: Checkpoint, put: Callable[[str, memoryview], None]) -> str:
    """Writes one blob per container, and last a manifest, without which nothing of it counts; returns their prefix."""
    if checkpoint.base is not None:
        raise InternalError(
            f"checkpoint {checkpoint.epoch} of {checkpoint.owner} is a delta; merge it before persisting"
        )
    prefix = f"{checkpoint.owner.operator}/{checkpoint.owner.index}/{checkpoint.epoch}"
    for chunk in checkpoint.state:
        put(f"{prefix}/{chunk.name}", memoryview(write_chunk(chunk)))
    put(f"{prefix}/{_MANIFEST}", memoryview(json.dumps(_manifest(checkpoint)).encode()))
    return prefix


def retrieve_state(prefix: str, get: Callable[[str], bytes]) -> Checkpoint:
    """Reads what `persist_state` wrote under a prefix; a damaged or missing blob is named in the error."""
    manifest = _read_manifest(f"{prefix}/{_MANIFEST}", get)
    state = tuple(_read_chunk(f"{prefix}/{name}", get) for name in manifest["containers"])
    owner, epoch = InstanceId(*manifest["owner"]), manifest["epoch"]
    return Checkpoint(owner, 0, -1, epoch, None, SlotSet.from_json(manifest["slots"]), state, (), epoch)


def _manifest(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "owner": list(checkpoint.owner),
        "epoch": checkpoint.epoch,
        "slots": checkpoint.slots.to_json(),
        "containers": [chunk.name for chunk in checkpoint.state],
    }


def _read_manifest(name: str, get: Callable[[str], bytes]) -> dict[str, Any]:
    try:
        manifest = json.loads(get(name))
    except (KeyError, OSError, ValueError) as error:
        raise EnvironmentFault(
            f"{name} is missing or damaged ({error}): the checkpoint there is not complete"
        ) from error
    return dict(manifest)


def _read_chunk(name: str, get: Callable[[str], bytes]) -> Chunk:
    try:
        return read_chunk(get(name))
    except (KeyError, OSError, EnvironmentFault) as error:
        raise EnvironmentFault(f"{name} cannot be read back: {error}") from error
