"""A store in an S3 bucket: obstore reads and writes, boto3 finds credentials and deletes.

Imported only when a store with an ``s3://`` address is opened, because boto3 is slow to import.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from flowmesh_store.s3.blobs import S3Blobs
from flowmesh_store.s3.copier import BlobCopier
from flowmesh_store.s3.location import connect_blobs, connect_records, parse_location
from flowmesh_store.s3.records import S3Records
from flowmesh_store.s3.sweep import S3Sweep


def open_bucket(
    url: str, *, grace_s: float, spool_dir: Path | None = None
) -> tuple[Callable[[str], S3Blobs], S3Records, S3Sweep]:
    """Returns the blobs by scope, the records and the sweep; no connection is opened yet.

    Raises:
        StoreError: the address is malformed, or there are no credentials.
    """
    location = parse_location(url)
    store, client = connect_blobs(location), connect_records(location)
    blobs = partial(
        S3Blobs,
        store,
        copier=BlobCopier(store, client, location),
        where=location.url,
        grace_s=grace_s,
        spool_dir=spool_dir,
    )
    return blobs, S3Records(client, store, location), S3Sweep(store, client, location)
