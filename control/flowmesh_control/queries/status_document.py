"""The complete status of an ended run as a blob.

The operator stores it, because the status of a custom resource is bounded and shows only a part;
the object has a reference to it. Collections keep it for as long as the run's outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_core.decoding import decode
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_store.blobs import BlobViews

_KIND = "blob"


@dataclass(frozen=True, slots=True)
class StatusDocuments:
    """Stores complete statuses.

    Attributes:
        content: where they are stored.
        policies: give a namespace's private scope.
        references: issues them.
    """

    content: BlobViews
    policies: CachePolicyStore
    references: ReferenceIssuer

    async def store(self, run: RunStatus, labels: Mapping[str, str]) -> str:
        """Stores an ended run's status as JSON.

        Args:
            run: from its ``final`` record.
            labels: of its namespace.

        Returns:
            A reference that is valid in its namespace.

        Raises:
            SpecError: two policies contradict each other in its namespace.
            StoreError: it could not be stored.
        """
        scope = self.policies.scopes(run.namespace, dict(labels)).private
        data = _content(run)
        digest = digest_bytes(data)
        await self.content.view(write=scope, read=()).put(digest, data)
        return self.references.issue(scope, _KIND, digest)


def document_artifact(run: RunStatus) -> Artifact:
    """Returns the document of an ended run as an artifact, whether it was stored or not."""
    data = _content(run)
    digest = digest_bytes(data)
    return content_artifact(_KIND, digest, len(data))


def _content(run: RunStatus) -> bytes:
    """Encodes a status; one just computed and one read back give the same bytes.

    Decoding turns integer zeros into floats, so the status is decoded once before it is encoded.
    """
    return msgspec.json.encode(decode(_decoder, msgspec.json.encode(run)))


_decoder = msgspec.json.Decoder(RunStatus)
