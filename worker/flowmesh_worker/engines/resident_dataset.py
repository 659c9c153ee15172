"""A data set as a folder: the manifest and the chunks, for an engine that keeps it loaded."""

from flowmesh_core.dataset import decode_manifest_of
from flowmesh_core.units import Digest
from flowmesh_worker.engine_api import DatasetInput, TreeInput

MANIFEST = "manifest.json"
"""The name of the manifest in the folder."""


def chunk_name(number: int) -> str:
    """Returns the name of a chunk in the folder."""
    return f"{number:06}.parquet"


def resident_dataset(folder: TreeInput) -> DatasetInput:
    """Returns the data set of a folder that the worker has fetched.

    Raises:
        IdentityMismatchError: the manifest is that of another data set.
    """
    digest = Digest(folder.digest)
    manifest = decode_manifest_of((folder.path / MANIFEST).read_bytes(), digest, digest)
    files = tuple(folder.path / chunk_name(number) for number in range(len(manifest.chunks)))
    return DatasetInput(manifest, files)
