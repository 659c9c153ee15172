"""The content behind digests: the simulated store has no bytes, only digests and descriptions.

Simulated engines look up the lengths of a chunk's rows and the model of a tree of weights. Content
depends only on its name, so equal actions give equal outputs.
"""

import random
from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING, Any

from flowmesh_core.dataset.manifest import ChunkRef, Manifest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.identity.digest import digest_bytes, digest_value
from flowmesh_core.machine.step_results import dataset_artifact
from flowmesh_core.protocol.results import Artifact

if TYPE_CHECKING:
    from flowmesh_core.units import Digest

SCHEMA = Schema.of({"text": "string"})
BYTES_PER_TOKEN = 4
ROW_BYTES = 64
CHUNK_ROWS = 32
"""The average rows of a chunk."""


@dataclass(frozen=True, slots=True)
class SimRows:
    """A chunk of rows.

    Attributes:
        prompt: mean tokens of a row's text so far, including upstream outputs.
        answer_mu: mean of the logarithm of an answer's length; ``answer_sigma`` is its deviation.
    """

    count: int
    prompt: float
    answer_mu: float
    answer_sigma: float


@dataclass(frozen=True, slots=True)
class SimWeights:
    """The tree of a model or adapter, with the name of its model in ``kernel/constants.yaml``."""

    model: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SimCheckpoint:
    """A checkpoint: the share of the work that is done, in [0, 1]."""

    done: float


Content = SimRows | SimWeights | SimCheckpoint


class SimContents:
    """All content by the digest of its identity, and the scopes in which it may be read.

    Attributes:
        scopes: by blob, the scopes in which it was uploaded or published.
    """

    def __init__(self) -> None:
        self.by_digest: dict[Digest, Content] = {}
        self.scopes: dict[Digest, set[str]] = {}

    def model(self, name: str, size_bytes: int, variant: str = "", kind: str = "model") -> Artifact:
        """Returns a model or an adapter; the variant distinguishes trained weights from the base.

        Its manifest is not made: identity and blob are those of its name.
        """
        blob = digest_bytes(f"weights {name} {variant}".encode())
        identity = digest_value(kind, [name, variant])
        self.by_digest[identity] = SimWeights(name, size_bytes)
        return Artifact(kind, identity, blob, size_bytes)

    def dataset(self, name: str, rows: int, facts: Any, extra_tokens: float = 0.0) -> Artifact:
        """Returns the data set of a name: equal names give equal content.

        Args:
            name: identifies its content.
            rows: number of rows.
            facts: the lengths: a member of ``datasets`` in the constants.
            extra_tokens: tokens of a prompt besides the question.
        """
        sizes = [CHUNK_ROWS] * (rows // CHUNK_ROWS) + (
            [rows % CHUNK_ROWS] if rows % CHUNK_ROWS else []
        )
        chunks = []
        for n, count in enumerate(sizes):
            rng = random.Random(f"{name}/{n}")
            mean = (
                sum(exp(rng.gauss(facts.prompt_mu, facts.prompt_sigma)) for _ in range(count))
                / count
            )
            chunk_rows = SimRows(count, mean + extra_tokens, facts.answer_mu, facts.answer_sigma)
            chunks.append(self.chunk(f"{name}/{n}", chunk_rows))
        return dataset_artifact(Manifest(SCHEMA, tuple(chunks)))

    def chunk(self, name: str, rows: SimRows) -> ChunkRef:
        """Returns the chunk of a name."""
        identity = digest_bytes(f"rows {name}".encode())
        self.by_digest[identity] = rows
        size = int(rows.count * (ROW_BYTES + rows.prompt * BYTES_PER_TOKEN))
        return ChunkRef(identity, digest_bytes(f"blob {name}".encode()), rows.count, size)

    def rows_of(self, artifact: Artifact) -> list[SimRows]:
        """Returns the rows of each chunk of a data set."""
        chunks = artifact.manifest.chunks if artifact.manifest else ()
        found = [self.by_digest.get(c.rows) for c in chunks]
        return [r for r in found if isinstance(r, SimRows)]

    def weights_of(self, artifact: Artifact) -> SimWeights | None:
        """Returns the weights of a tree; None if it is not a model or adapter."""
        found = self.by_digest.get(artifact.digest)
        return found if isinstance(found, SimWeights) else None

    def is_weights(self, digest: "Digest") -> bool:
        """Whether this is the digest of a model or an adapter."""
        return type(self.by_digest.get(digest)) is SimWeights

    def allow(self, artifact: Artifact, scope: str) -> None:
        """Records that an artifact was uploaded or published in a scope."""
        for blob in artifact.blobs():
            self.scopes.setdefault(blob, set()).add(scope)


def extended(rows: SimRows, by_tokens: float, factor: int = 1) -> SimRows:
    """Returns rows with ``by_tokens`` added to each, and their number multiplied by ``factor``."""
    return replace(rows, count=rows.count * factor, prompt=rows.prompt + by_tokens)
