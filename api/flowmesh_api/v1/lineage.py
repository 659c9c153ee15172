"""Lineage: artifacts and rows with what they were made from."""

from enum import StrEnum
from typing import Any

import msgspec


class Direction(StrEnum):
    """Which way lineage is followed."""

    UP = "up"
    DOWN = "down"


class Producer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where actions of a step ran, in any run.

    Attributes:
        actions: number of the step's actions that ran there.
    """

    worker: str
    pool: str = ""
    device_class: str = ""
    libraries: dict[str, str] = {}
    actions: int = 0


class ArtifactInfo(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The properties of an artifact besides its digest.

    Attributes:
        blob: of a data set, the digest of its manifest's bytes.
    """

    kind: str
    size_bytes: int = 0
    rows: int = 0
    blob: str = ""


class Derivation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a step of a run made its outputs.

    Attributes:
        inputs: identity digests by port; several where sources are concatenated.
        outputs: identity digests by port.
        action_ids: the first of its actions, ``actions`` their number.
        producers: runs that had published what this one found.
        params: after defaults; a large one is ``{"digest", "bytes"}``.
        fields: the identity fields (``dtype``, ``batchInvariant`` ...).
        about: the artifacts' properties, by digest.
        makers: where its actions ran; empty for a hit of a whole step.
        row_port: of a row-wise step, the port whose chunk k made chunk k of ``row_output``;
            both empty where an output is made of every row.
        partial: whether only some of the inputs are here.
    """

    uid: str
    run: str
    namespace: str
    step: str
    engine: str
    contract: int
    implementation: int
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, str]
    time_s: float
    action_ids: tuple[str, ...] = ()
    actions: int = 0
    hits: int = 0
    producers: tuple[str, ...] = ()
    params: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    about: dict[str, ArtifactInfo] = {}
    makers: tuple[Producer, ...] = ()
    row_port: str = ""
    row_output: str = ""
    partial: bool = False


class LineageWalk(msgspec.Struct, frozen=True):
    """The derivations on the way from an artifact.

    Attributes:
        direction: a ``Direction``.
        derivations: nearest first, and of these executions before hits.
        cut: whether there is more than was walked.
        others: of an artifact that was followed into one of several runs that made it, the number
            of the other runs.
    """

    digest: str
    direction: str
    derivations: tuple[Derivation, ...]
    cut: bool = False
    others: dict[str, int] = {}


class ProducedArtifact(msgspec.Struct, frozen=True):
    """An artifact that a step of a run made."""

    step: str
    port: str
    kind: str
    digest: str
    rows: int
    size_bytes: int


class ChunkOrigin(msgspec.Struct, frozen=True):
    """The rows that a chunk was made from.

    Attributes:
        digest: of their data set; ``chunk`` and ``rows_digest`` name its chunk.
        first_row: number of its first row in the data set, from 0; ``rows`` their number.
        step: the step that read them, of run ``uid``.
    """

    digest: str
    chunk: int
    rows_digest: str
    first_row: int
    rows: int
    step: str = ""
    uid: str = ""


class RowOrigins(msgspec.Struct, frozen=True):
    """What a data set's chunks were made from.

    Attributes:
        chunks: for each chunk: itself, then what it was made from, nearest first.
        whole: inputs of which every chunk was made as a whole, as (step, port, digests).
        complete: whether all manifests on the way could be read.
    """

    digest: str
    chunks: tuple[tuple[ChunkOrigin, ...], ...]
    whole: tuple[tuple[str, str, tuple[str, ...]], ...]
    complete: bool = True
