"""The origin of an artifact's rows: chunk by chunk through row-wise steps.

A row-wise step makes output chunk k from input chunk k. Any other output is made from every row of
its inputs. The control plane calls it with the manifests that it could read.
"""

from collections.abc import Mapping, Sequence

import msgspec

from flowmesh_api.v1.lineage import ChunkOrigin, Derivation, RowOrigins
from flowmesh_core.dataset.manifest import ChunkRef, Manifest
from flowmesh_core.units import Digest


def row_origins(
    digest: Digest, walked: Sequence[Derivation], manifests: Mapping[Digest, Manifest]
) -> RowOrigins:
    """Follows a data set's chunks up through row-wise steps.

    Args:
        digest: the data set.
        walked: derivations upwards from it, nearest first.
        manifests: of the data sets on the way, as far as they could be read.

    Returns:
        The origins of each chunk, and whether they are complete.
    """
    manifest = manifests.get(digest)
    paths = [] if manifest is None else [[origin] for origin in _located(digest, manifest)]
    whole: list[tuple[str, str, tuple[str, ...]]] = []
    complete = manifest is not None
    at, seen = digest, {digest}
    while (made := _maker_of(at, walked)) is not None:
        aligned = made.row_port if made.outputs.get(made.row_output) == at else ""
        whole += [(made.step, port, ds) for port, ds in made.inputs.items() if port != aligned]
        if not aligned:
            break
        sources = tuple(map(Digest, made.inputs[aligned]))
        located = _chunks_of(sources, manifests)
        if located is None or len(located) != len(paths):
            complete = False
            break
        for path, origin in zip(paths, located, strict=True):
            path.append(msgspec.structs.replace(origin, step=made.step, uid=made.uid))
        if len(sources) != 1 or sources[0] in seen:
            break
        at = sources[0]
        seen.add(at)
    return RowOrigins(digest, tuple(map(tuple, paths)), tuple(whole), complete)


def _maker_of(digest: Digest, walked: Sequence[Derivation]) -> Derivation | None:
    """The derivation that made it, the earliest where several runs did."""
    made = [d for d in walked if digest in d.outputs.values()]
    return min(made, key=lambda d: (d.time_s, d.uid, d.step), default=None)


def _chunks_of(
    sources: Sequence[Digest], manifests: Mapping[Digest, Manifest]
) -> list[ChunkOrigin] | None:
    found: list[ChunkOrigin] = []
    for digest in sources:
        manifest = manifests.get(digest)
        if manifest is None:
            return None
        found += [o for o in _located(digest, manifest) if o.rows]
    return found


def _located(digest: Digest, manifest: Manifest) -> list[ChunkOrigin]:
    found, first = [], 0
    for number, chunk in enumerate(manifest.chunks):
        found.append(_origin(digest, number, chunk, first))
        first += chunk.count
    return found


def _origin(digest: Digest, number: int, chunk: ChunkRef, first: int) -> ChunkOrigin:
    return ChunkOrigin(digest, number, chunk.rows, first, chunk.count)
