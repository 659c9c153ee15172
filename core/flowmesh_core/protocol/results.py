"""Artifacts and the published record of an action.

The worker reports artifacts, the control plane publishes them as an :class:`ActionResult` under
``actions/<scope>/<action_id>`` and reads them back at a hit.
"""

from typing import Any

import msgspec

from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.decoding import decode
from flowmesh_core.errors import IdentityMismatchError
from flowmesh_core.identity.content import content_identity
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.units import DEFAULT_TRUST, Digest

INLINE_BYTES_MAX = 4096
"""Outputs up to this size are inside the action result instead of under ``cas/``."""


class Artifact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Immutable content.

    Attributes:
        kind: ``dataset``, ``model``, ``adapter``, ``metrics`` or ``blob``.
        digest: its identity, which contains its kind: ``dataset_digest``, ``tree_identity`` or
            ``content_identity``. Names of actions are made of it.
        blob: the digest of its bytes, under which the store has it: of a data set, a model or an
            adapter those of its manifest. A checkpoint has no other name.
        size_bytes: content size, chunks and files included.
        rows: number of rows of a data set.
        manifest: for a data set, its manifest, where it is known.
        value: for metrics, their values (they are small, and conditions read them).
    """

    kind: str
    digest: Digest
    blob: Digest
    size_bytes: int = 0
    rows: int = 0
    manifest: Manifest | None = None
    value: dict[str, Any] | None = None

    def blobs(self) -> tuple[Digest, ...]:
        """Returns the digests under ``cas/`` that it consists of, as far as they are known here."""
        if self.manifest is None:
            return (self.blob,)
        return (self.blob, *(c.blob for c in self.manifest.chunks))

    def blob_sizes(self) -> tuple[tuple[Digest, int], ...]:
        """Returns those of the digests whose size in bytes is known here, with it."""
        if self.manifest is not None:
            return tuple((c.blob, c.bytes) for c in self.manifest.chunks)
        is_one_blob = self.kind in ("metrics", "blob") and self.size_bytes
        return ((self.blob, self.size_bytes),) if is_one_blob else ()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an attempt used.

    Attributes:
        units: work in the contract's ``work_unit``.
        load_s: seconds that the attempt waited for components to load.
        run_s: seconds that the engine worked on it.
        fetch_s: seconds of fetching inputs; ``put_s`` of storing outputs.
        joules: energy; ``joules_estimated`` says that no meter was read.
        peak_memory_mib: peak device memory (host memory on a CPU).
        resumed: whether it began at a checkpoint, so that ``run_s`` and ``units`` are of the rest.
        fetched_bytes: what came from the store to the worker during ``fetch_s``, also for others.
    """

    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    load_s: float = 0.0
    run_s: float = 0.0
    fetch_s: float = 0.0
    put_s: float = 0.0
    joules: float = 0.0
    joules_estimated: bool = True
    peak_memory_mib: int = 0
    resumed: bool = False
    fetched_bytes: int = 0


class PartProvenance(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The attempt that made a part of a whole step's result.

    Attributes:
        created_s: when that result was made, by the control plane's clock.
    """

    attempt_id: str
    worker: str
    pool: str
    created_s: float


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where and how a result was produced; not part of its identity.

    Attributes:
        trust: of the worker's pool, when the attempt ended; of a whole step the least of its parts.
        parts: of a whole step that the control plane composed, the attempts that made its parts.
    """

    worker: str = ""
    pool: str = ""
    device_class: str = ""
    attempt_id: str = ""
    libraries: dict[str, str] = {}
    started_s: float = 0.0
    ended_s: float = 0.0
    trust: int = DEFAULT_TRUST
    parts: tuple[PartProvenance, ...] = ()


class Bill(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What running the action cost, whichever runs paid it."""

    nanousd: int = 0
    joules: float = 0.0
    joules_estimated: bool = True


class ActionResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The published record of an action, written once per generation.

    Attributes:
        action_id: its name.
        generation: raised when an expired or lost result is replaced.
        engine: name of the engine, ``contract`` and ``implementation`` its versions.
        params: typed parameters; for lineage and audit.
        inputs: identity digests by port.
        outputs: artifacts by port.
        inline: contents of small blobs by digest.
        created_s: seconds since the epoch (UTC).
        expires_s: when it may be collected; 0 never.
        run_uid: the run whose attempt published it, of this ``namespace``.
    """

    action_id: Digest
    generation: int
    engine: str
    contract: int
    implementation: int
    inputs: dict[str, Digest]
    outputs: dict[str, Artifact]
    params: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    inline: dict[Digest, bytes] = {}
    usage: Usage = Usage()
    bill: Bill = Bill()
    provenance: Provenance = Provenance()
    created_s: float = 0.0
    expires_s: float = 0.0
    run_uid: str = ""
    namespace: str = ""


def content_artifact(
    kind: str, blob: Digest, size_bytes: int = 0, value: dict[str, Any] | None = None
) -> Artifact:
    """Returns metrics or a blob as an artifact.

    Args:
        kind: ``metrics`` or ``blob``.
        blob: the digest of its bytes.
        size_bytes: their number, 0 where it is not known.
        value: of metrics.
    """
    return Artifact(kind, content_identity(kind, blob), blob, size_bytes, value=value)


def require_identity(artifact: Artifact, content: bytes | None = None) -> None:
    """Refuses metrics or a blob whose content is not what its identity says.

    Args:
        artifact: as a result or an assignment has it.
        content: its bytes, unless whoever read them has verified their digest.

    Raises:
        IdentityMismatchError: identity, blob and content do not belong together.
    """
    if content_identity(artifact.kind, artifact.blob) != artifact.digest or (
        content is not None and digest_bytes(content) != artifact.blob
    ):
        raise IdentityMismatchError(
            f"the content is not that of the {artifact.kind} with the identity {artifact.digest}",
            artifact.blob,
        )


def encode_result(result: ActionResult) -> bytes:
    """Returns the stored form: JSON, so that people can read a bucket."""
    return msgspec.json.encode(result)


def decode_result(data: bytes) -> ActionResult:
    """Reads the stored form.

    Raises:
        msgspec.DecodeError: the bytes are not an action result.
    """
    return decode(_decoder, data)


_decoder = msgspec.json.Decoder(ActionResult)
