"""Lists the queries in a storage, and their checkpoints."""

from __future__ import annotations

from formats.manifest import Manifest, read_manifest
from primitives.errors import UserError
from seep.storage.catalogue import Catalogue
from seep.storage.layout import contents
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore

#: A storage: its location, or its settings.
Storage = str | StorageSettings


def opened(storage: Storage) -> BlobStore:
    """Opens the storage; raises UserError if the settings have no location."""
    store = store_of(StorageSettings(location=storage) if isinstance(storage, str) else storage)
    if store is None:
        raise UserError("the settings of storage have no location: say where the checkpoints are")
    return store


def catalogue_in(store: BlobStore, query: str) -> Catalogue[Manifest]:
    """Returns the catalogue of a query's checkpoints."""
    return Catalogue(store, query, read_manifest)


def queries(storage: Storage) -> list[str]:
    """Lists the queries of which the storage has, or has had, checkpoints. It lists all keys in the storage."""
    return queries_in(opened(storage))


def queries_in(store: BlobStore) -> list[str]:
    """Lists the queries in an open storage."""
    return sorted(query for query, there in contents(store.list()).items() if there.checkpoints or there.generations)


def checkpoints(storage: Storage, query: str) -> list[Manifest]:
    """Returns the manifests of a query's complete checkpoints and savepoints, the newest first."""
    return catalogue_in(opened(storage), query).complete()


def nbytes(manifest: Manifest) -> int:
    """Returns the bytes that a checkpoint refers to, including those that it shares with others."""
    components = manifest.components.values()
    blobs = (blob for each in components for container in each.containers.values() for blob in container.blobs)
    sizes = {blob.key: blob.index.size for blob in blobs}
    return sum(sizes.values())
