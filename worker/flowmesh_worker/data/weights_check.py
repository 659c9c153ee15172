"""Whether a model's weights fit the memory that was asked for, told before they are fetched.

A stored model's manifest says how large its files are, and ``config.json`` in which dtype they are
kept: a few kilobytes that tell what gigabytes would. Engines check again, and more closely, what
they have before them; this only spares the way of what can never fit.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.errors import FailureKind, FlowMeshError
from flowmesh_core.protocol.messages import Assignment, FailureReport
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.tree import TreeBlobs, TreeFile, read_tree
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.engines.models.model_facts import DTYPE_BYTES, dtype_of

SERVING = frozenset({"llm.generate", "llm.agent", "llm.score", "llm.embed"})
"""Engines that hold all of their model's weights in the memory of their lane, in one dtype."""
_CONFIG, _WEIGHTS = "config.json", ".safetensors"
_MIB = 1024 * 1024


async def misfit(
    assignment: Assignment, blobs: TreeBlobs, components: ComponentCache
) -> FailureReport | None:
    """Out of memory, where the weights alone need more than the lane may use; else None.

    Args:
        assignment: of any engine.
        blobs: where manifests and configurations are read.
        components: what is here already is left to its engine.
    """
    for artifact in _models(assignment):
        if components.holds(artifact.digest):
            continue
        try:
            files = (await read_tree(blobs, artifact.digest)).files
            needed = await _needed_bytes(files, blobs, assignment.fields)
        except (FlowMeshError, ValueError):
            continue  # fetching it, or its engine, will say what is wrong
        has_mib = assignment.memory_mib * max(1, assignment.tensor_parallel)
        if needed > has_mib * _MIB:
            return FailureReport(
                FailureKind.OUT_OF_MEMORY.value,
                f"the weights need {needed // _MIB} MiB; {assignment.engine} may use {has_mib} MiB",
                "raise resources.memory, or use a smaller model or dtype",
            )
    return None


def _models(assignment: Assignment) -> Iterator[Artifact]:
    if assignment.engine in SERVING and assignment.memory_mib:
        given = (assignment.inputs.get(port) for port in assignment.components)
        yield from (ref.artifact for ref in given if ref and ref.artifact.kind == "model")


async def _needed_bytes(
    files: tuple[TreeFile, ...], blobs: TreeBlobs, fields: Mapping[str, Any]
) -> int:
    config = next((f.digest for f in files if f.path == _CONFIG), None)
    if config is None:
        return 0
    said = json.loads(await blobs.get(config))
    own = dtype_of(said if isinstance(said, dict) else {})
    wanted = str(fields.get("dtype") or "auto")
    stored = sum(f.bytes for f in files if f.path.endswith(_WEIGHTS) and "/" not in f.path)
    return stored * DTYPE_BYTES.get(wanted, DTYPE_BYTES[own]) // DTYPE_BYTES[own]
