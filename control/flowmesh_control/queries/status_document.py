"""The whole status of an ended run as a blob, for whoever is shown only a part of it.

Stored by the operator, whose objects hold a bounded number of rows and name it; kept by collections
for as long as the run's outputs are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_core.decoding import decode
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import issue
from flowmesh_store.blobs import Blobs

_KIND = "blob"


@dataclass(frozen=True, slots=True)
class StatusDocuments:
    """Stores whole statuses.

    Attributes:
        policies: say which scope is a namespace's own.
        master_key: signs references.
    """

    blobs: Blobs
    policies: CachePolicyStore
    master_key: bytes

    async def store(self, run: RunStatus, labels: Mapping[str, str]) -> str:
        """Stores an ended run's status as JSON.

        Args:
            run: as its ``final`` record has it.
            labels: of its namespace.

        Returns:
            The reference by which its namespace reads it.

        Raises:
            SpecError: two policies contradict each other in its namespace.
            StoreError: it could not be stored.
        """
        scope = self.policies.scopes(run.namespace, dict(labels)).private
        data = _content(run)
        digest = digest_bytes(data)
        await self.blobs.put(digest, data)
        return issue(self.master_key, scope, _KIND, digest)


def document_artifact(run: RunStatus) -> Artifact:
    """The document of an ended run, whether it was stored or not."""
    data = _content(run)
    digest = digest_bytes(data)
    return Artifact(_KIND, digest, digest, len(data))


def _content(run: RunStatus) -> bytes:
    """The same bytes for a status at hand and for one read back, whose zeros have become floats."""
    return msgspec.json.encode(decode(_decoder, msgspec.json.encode(run)))


_decoder = msgspec.json.Decoder(RunStatus)
