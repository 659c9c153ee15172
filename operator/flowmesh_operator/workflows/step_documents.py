"""All steps and outputs of a run that a status does not hold, as a document in the store."""

from collections.abc import Mapping

import msgspec

from flowmesh_control.assembly import Given
from flowmesh_core.identity import digest_bytes
from flowmesh_core.sharing import issue
from flowmesh_core.status.view import RunStatus


async def store_document(given: Given, run: RunStatus, labels: Mapping[str, str]) -> str:
    """Stores the run's status as JSON; returns the reference by which its namespace reads it.

    Raises:
        StoreError: it could not be stored.
    """
    data = msgspec.json.encode(run)
    digest = digest_bytes(data)
    await given.store.blobs.put(digest, data)
    scopes = given.policies.scopes(run.namespace, dict(labels))
    return issue(given.master_key, scopes.private, digest)
