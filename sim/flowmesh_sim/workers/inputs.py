"""What of an attempt's inputs came with it, and what has to be fetched."""

from flowmesh_core.protocol.messages import InputRef
from flowmesh_core.units import Digest


def at_hand(ref: InputRef) -> bool:
    """Whether an input came with the assignment."""
    a = ref.artifact
    if a.kind == "dataset":
        return a.manifest is not None and all(c.blob in ref.inline for c in a.manifest.chunks)
    return a.kind not in ("model", "adapter") and (a.blob in ref.inline or a.value is not None)


def items_of(ref: InputRef) -> dict[Digest, tuple[tuple[Digest, ...], int]]:
    """What has to be fetched for an input: name → blobs that must be there, and bytes."""
    a = ref.artifact
    if a.kind == "dataset" and a.manifest is not None:
        chunks = [c for c in a.manifest.chunks if c.blob not in ref.inline]
        return {c.blob: ((c.blob,), c.bytes) for c in chunks}
    return {a.digest: ((a.blob,), a.size_bytes)}
