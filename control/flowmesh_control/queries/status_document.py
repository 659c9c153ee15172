"""The whole status of an ended run as a blob, for whoever is shown only a part of it.

Stored by the operator, whose objects hold a bounded number of rows and name it; kept by collections
for as long as the run's outputs are.
"""

import msgspec

from flowmesh_api.v1.runs import RunStatus
from flowmesh_core.decoding import decode
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import issue
from flowmesh_store.blobs import Blobs

_KIND = "blob"


async def store_document(
    blobs: Blobs, run: RunStatus, *, private_scope: str, master_key: bytes
) -> str:
    """Stores an ended run's status as JSON.

    Args:
        blobs: of the store.
        run: as its ``final`` record has it.
        private_scope: of its namespace.
        master_key: signs the reference.

    Returns:
        The reference by which its namespace reads it.

    Raises:
        StoreError: it could not be stored.
    """
    data = _content(run)
    digest = digest_bytes(data)
    await blobs.put(digest, data)
    return issue(master_key, private_scope, _KIND, digest)


def document_artifact(run: RunStatus) -> Artifact:
    """The document of an ended run, whether it was stored or not."""
    data = _content(run)
    digest = digest_bytes(data)
    return Artifact(_KIND, digest, digest, len(data))


def _content(run: RunStatus) -> bytes:
    """The same bytes for a status at hand and for one read back, whose zeros have become floats."""
    return msgspec.json.encode(decode(_decoder, msgspec.json.encode(run)))


_decoder = msgspec.json.Decoder(RunStatus)
