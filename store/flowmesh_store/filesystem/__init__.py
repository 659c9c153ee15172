"""The store in a directory: one machine, or several that share a POSIX filesystem."""

from flowmesh_store.filesystem.blobs import FilesystemBlobs
from flowmesh_store.filesystem.records import FilesystemRecords
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.filesystem.sweep import FilesystemSweep

__all__ = ["FilesystemBlobs", "FilesystemRecords", "FilesystemSweep", "StoreRoot"]
