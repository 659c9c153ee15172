"""Withheld results: stored, and found by no look-up."""

import msgspec

from flowmesh_api.v1.audit import Provenance


class ResultSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which results are meant; every condition that is given must hold, and one must be given.

    Attributes:
        pool: of the worker that made them; empty for any, as with the other texts.
        worker: its name.
        attempt: the id of the attempt that made it.
        library: a library of the engine host, as ``name`` or ``name=version``.
        since_s: made at this time or later (Unix time, by the control plane's clock).
    """

    pool: str = ""
    worker: str = ""
    attempt: str = ""
    library: str = ""
    since_s: float = 0.0


class WithholdBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/withheld``.

    Attributes:
        dry_run: show what would be withheld, and change nothing.
        rerun: start every run concerned once more, paid by the fabric.
        purge: delete the results after they were withheld.
    """

    results: ResultSelector
    dry_run: bool = False
    rerun: bool = False
    purge: bool = False


class ReleaseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/withheld/release``: which withheld results are found again."""

    results: ResultSelector


class ReleaseReport(msgspec.Struct, frozen=True):
    """The response to ``POST /v1/withheld/release``: how many results are found again."""

    released: int


class WithheldResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result that is withheld; also the record ``withheld/<scope>/<action>``.

    Attributes:
        generation: of the record; the next one is not withheld.
        created_s: when the result was made; ``withheld_s`` when it was withheld.
        expires_s: when it may be collected; 0 never.
        uid: the run that published it, of this ``namespace``.
        reason: what selected it.
        made_by: where it was made; of a whole step without a worker.
        parts: of a whole step, its attempts and workers: (attempt, worker, pool, time).
    """

    scope: str
    action_id: str
    engine: str
    generation: int
    created_s: float
    withheld_s: float
    reason: str
    expires_s: float = 0.0
    uid: str = ""
    namespace: str = ""
    made_by: Provenance = Provenance()
    parts: tuple[tuple[str, str, str, float], ...] = ()


class WithheldPage(msgspec.Struct, frozen=True):
    """The response to ``GET /v1/withheld``: the number of withheld results, and the first."""

    count: int
    results: tuple[WithheldResult, ...]


class ConcernedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that has a withheld result, or something that was made of one.

    Attributes:
        phase: a ``Phase``; empty where its end is no longer stored.
        steps: those whose outputs are concerned, the first 32.
        derived: whether it has only what was made of withheld results.
        rerun: uid of the run that was started in its place; ``refused`` says why none was.
    """

    uid: str
    name: str
    namespace: str
    phase: str = ""
    steps: tuple[str, ...] = ()
    derived: bool = False
    rerun: str = ""
    refused: str = ""


class DerivedArtifact(msgspec.Struct, frozen=True):
    """An artifact that was made of a withheld result, by a step of a run."""

    digest: str
    kind: str
    uid: str
    step: str
    port: str


class WithholdReport(msgspec.Struct, frozen=True):
    """The response to ``POST /v1/withheld``.

    Attributes:
        read: results that were looked at.
        count: of them those that are withheld now; ``scopes`` their number by scope.
        results: the first of them.
        runs: that have one, or something made of one.
        derived: artifacts that were made of them, nearest first; ``cut`` where there are more.
        purged: how many were deleted.
        connected: workers that were selected by name or pool and may still get work: what they
            make from now on is not withheld.
        took_s: how long the search took.
    """

    read: int
    count: int
    scopes: dict[str, int]
    results: tuple[WithheldResult, ...]
    runs: tuple[ConcernedRun, ...]
    derived: tuple[DerivedArtifact, ...]
    cut: bool = False
    purged: int = 0
    connected: tuple[str, ...] = ()
    took_s: float = 0.0
