"""Prepares an engine's outputs for storage: Parquet chunks, canonical metrics, files.

Runs in the engine host, whose processor time belongs to the engine, so that the agent only moves
bytes.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from flowmesh_core.dataset import Manifest, Schema
from flowmesh_core.errors import AttemptError, Failure, FailureKind, FlowMeshError, IdentityError
from flowmesh_core.identity import canonical_bytes, decode, digest_bytes
from flowmesh_worker.engine_api import Blob, Metrics, Output, Rows, Tree
from flowmesh_worker.host.work import AttemptDir
from flowmesh_worker.ipc.frames import HostOutput

FRAME_BLOB_BYTES_MAX = 1 << 20
"""Chunks beyond this size go to the agent as files, not inside a frame."""

_ROWS_ON_LOOP = 256


async def prepare_outputs(
    outputs: Mapping[str, Output], row_output: str, directory: AttemptDir
) -> dict[str, HostOutput]:
    """Prepares all outputs of an attempt.

    Args:
        outputs: by port.
        row_output: the port whose rows stay one chunk.
        directory: the attempt's directory, for outputs too large for a frame.

    Raises:
        AttemptError: rows or metrics have no canonical form (kind ``bad-input``, since another
            attempt would fail in the same way).
        OSError: no space is left.
    """
    prepared = {}
    for port, output in outputs.items():
        try:
            prepared[port] = await _prepare(output, port == row_output, directory)
        except FlowMeshError as error:
            raise AttemptError(
                Failure(FailureKind.BAD_INPUT, f"output {port!r}: {error.reason}", error.remedy)
            ) from error
    return prepared


async def _prepare(output: Output, single: bool, directory: AttemptDir) -> HostOutput:
    match output:
        case Rows():
            if len(output.rows) > _ROWS_ON_LOOP:
                return await asyncio.to_thread(_dataset, output, single, directory)
            return _dataset(output, single, directory)
        case Metrics(values):
            data = canonical_bytes(dict(values))
            digest = digest_bytes(data)
            return HostOutput("metrics", contents={digest: data}, value=decode(data), main=digest)
        case Tree(path):
            return HostOutput("tree", path=str(_inside(path, directory)))
        case Blob(content):
            return _blob(content, directory)


def _dataset(output: Rows, single: bool, directory: AttemptDir) -> HostOutput:
    if output.schema is None and not len(output.rows) and isinstance(output.rows, list | tuple):
        return HostOutput("dataset", manifest=Manifest(Schema()))
    from flowmesh_store.datasets import as_single_chunk, rows_to_chunks  # noqa: PLC0415 - heavy

    cut = as_single_chunk if single else rows_to_chunks
    manifest, blobs = cut(output.rows, output.schema)
    small = {d: b for d, b in blobs.items() if len(b) <= FRAME_BLOB_BYTES_MAX}
    files = {}
    for digest in blobs.keys() - small.keys():
        path = directory.use() / f"chunk-{digest}"
        path.write_bytes(blobs[digest])
        files[digest] = str(path)
    return HostOutput("dataset", manifest=manifest, contents=small, files=files)


def _blob(content: bytes | Path, directory: AttemptDir) -> HostOutput:
    if isinstance(content, bytes):
        if len(content) <= FRAME_BLOB_BYTES_MAX:
            digest = digest_bytes(content)
            return HostOutput("blob", contents={digest: content}, main=digest)
        path = directory.use() / "blob"
        path.write_bytes(content)
        return HostOutput("blob", path=str(path))
    return HostOutput("blob", path=str(_inside(content, directory)))


def _inside(path: Path, directory: AttemptDir) -> Path:
    if not path.resolve().is_relative_to(directory.use().resolve()):
        raise IdentityError(
            f"the engine wrote to {path}: expected a path below out_dir",
            remedy="write the engine's outputs below work.out_dir",
        )
    return path
