"""The whole status of an ended run as a blob, for whoever is shown only a part of it.

Stored by the operator, whose objects hold a bounded number of rows and name it; kept by collections
for as long as the run's outputs are.
"""

from collections.abc import Mapping

import msgspec

from flowmesh_control.wiring import Given
from flowmesh_core.decoding import decode
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import issue
from flowmesh_core.status.view import RunStatus

_KIND = "blob"


async def store_document(given: Given, run: RunStatus, labels: Mapping[str, str]) -> str:
    """Stores an ended run's status as JSON.

    Args:
        given: the epoch's store, policies and key.
        run: as its ``final`` record has it.
        labels: of its namespace.

    Returns:
        The reference by which its namespace reads it.

    Raises:
        StoreError: it could not be stored.
    """
    data = _content(run)
    digest = digest_bytes(data)
    await given.store.blobs.put(digest, data)
    scopes = given.policies.scopes(run.namespace, dict(labels))
    return issue(given.master_key, scopes.private, _KIND, digest)


def document_artifact(run: RunStatus) -> Artifact:
    """The document of an ended run, whether it was stored or not."""
    data = _content(run)
    digest = digest_bytes(data)
    return Artifact(_KIND, digest, digest, len(data))


def _content(run: RunStatus) -> bytes:
    """The same bytes for a status at hand and for one read back, whose zeros have become floats."""
    return msgspec.json.encode(decode(_decoder, msgspec.json.encode(run)))


_decoder = msgspec.json.Decoder(RunStatus)
