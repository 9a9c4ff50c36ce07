"""What a store has: queries, and their checkpoints."""

from __future__ import annotations

from formats.manifest import Manifest, read_manifest
from primitives.errors import UserError
from seep.storage.catalogue import Catalogue
from seep.storage.layout import contents
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore

#: Where checkpoints are: a location, or the settings of a storage that needs more than that.
Storage = str | StorageSettings


def opened(storage: Storage) -> BlobStore:
    """The store; UserError if the settings name none."""
    store = store_of(StorageSettings(location=storage) if isinstance(storage, str) else storage)
    if store is None:
        raise UserError("the settings of storage have no location: say where the checkpoints are")
    return store


def catalogue_in(store: BlobStore, query: str) -> Catalogue[Manifest]:
    """The checkpoints of a query."""
    return Catalogue(store, query, read_manifest)


def queries(storage: Storage) -> list[str]:
    """The queries that a store has checkpoints of, or has had. Costs a look at the keys of all that is there."""
    return queries_in(opened(storage))


def queries_in(store: BlobStore) -> list[str]:
    """As `queries`."""
    return sorted(query for query, there in contents(store.list()).items() if there.checkpoints or there.generations)


def checkpoints(storage: Storage, query: str) -> list[Manifest]:
    """What the manifests of a query's complete checkpoints and savepoints say, the newest first."""
    return catalogue_in(opened(storage), query).complete()


def nbytes(manifest: Manifest) -> int:
    """Bytes of all that a checkpoint refers to, what it shares with others included."""
    components = manifest.components.values()
    blobs = (blob for each in components for container in each.containers.values() for blob in container.blobs)
    sizes = {blob.key: blob.index.size for blob in blobs}
    return sum(sizes.values()) + sum(extra.size for component in components for extra in component.extras)
