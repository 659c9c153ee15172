"""Blobs to fetch for an attempt's inputs; prewarm entries in the form of an attempt."""

from flowmesh_core.protocol.messages import Assignment, InputRef, PrewarmSpec
from flowmesh_core.units import Digest

Items = dict[Digest, tuple[tuple[Digest, ...], int]]
"""Content to fetch: by digest, the blobs that the store must have, and the size in bytes."""


def items_of(ref: InputRef) -> Items:
    """Returns the content to fetch for an input."""
    a = ref.artifact
    if a.kind == "dataset" and a.manifest is not None:
        chunks = [c for c in a.manifest.chunks if c.blob not in ref.inline]
        return {c.blob: ((c.blob,), c.bytes) for c in chunks}
    return {a.digest: ((a.blob,), a.size_bytes)}


def as_assignment(wanted: Assignment | PrewarmSpec) -> Assignment:
    """Returns what a host is started for as an assignment; a prewarm entry is converted."""
    if isinstance(wanted, Assignment):
        return wanted
    models = wanted.components
    return Assignment(
        attempt_id="",
        action_id=wanted.signature,
        signature=wanted.signature,
        engine=wanted.engine,
        contract=wanted.contract,
        implementation=wanted.implementation,
        params={},
        fields={},
        inputs={port: InputRef(model) for port, model in models.items()},
        signature_params=wanted.signature_params,
        components=(*models, *wanted.per_attempt_components),
        memory_mib=wanted.memory_mib,
        tensor_parallel=wanted.tensor_parallel,
    )
