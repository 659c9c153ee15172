"""Checks before a model is fetched that its weights can fit the requested memory.

A stored model's manifest has the sizes of its files, and ``config.json`` their dtype: a few
kilobytes instead of gigabytes. Engines check again, and more precisely; this check only avoids
fetching a model that can never fit.
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

SERVING = frozenset({"llm.generate", "llm.agent", "llm.openai", "llm.score", "llm.embed"})
"""Engines that load all of their model's weights into their instance's memory, in one dtype."""
_CONFIG, _WEIGHTS = "config.json", ".safetensors"
_MIB = 1024 * 1024


async def weights_failure(
    assignment: Assignment, blobs: TreeBlobs, components: ComponentCache
) -> FailureReport | None:
    """Returns an out-of-memory failure if the weights alone exceed the instance's memory, or None.

    Args:
        assignment: of any engine.
        blobs: where manifests and configurations are read.
        components: a model that is already on the disk is left to its engine's check.
    """
    for artifact in _models(assignment):
        if components.holds(artifact.digest):
            continue
        try:
            files = (await read_tree(blobs, artifact.blob)).files
            needed = await _needed_bytes(files, blobs, assignment.fields)
        except (FlowMeshError, ValueError):
            continue  # the fetch or the engine reports what is wrong
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
    parsed = json.loads(await blobs.get(config))
    own = dtype_of(parsed if isinstance(parsed, dict) else {})
    wanted = str(fields.get("dtype") or "auto")
    stored = sum(f.bytes for f in files if f.path.endswith(_WEIGHTS) and "/" not in f.path)
    return stored * DTYPE_BYTES.get(wanted, DTYPE_BYTES[own]) // DTYPE_BYTES[own]
