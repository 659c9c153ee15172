"""Verification of a run's outputs: from their bytes down to what was brought into the fabric."""

import msgspec


class BrokenLink(msgspec.Struct, frozen=True):
    """The first link that does not hold.

    Attributes:
        kind: ``record``, ``blob``, ``identity`` or ``step``.
        name: of the record's key, the blob's digest, or ``STEP.PORT``.
        reason: why it does not hold.
    """

    kind: str
    name: str
    reason: str


class VerificationReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to ``GET /v1/runs/{uid}/verify``.

    Attributes:
        outputs: those that were verified.
        steps: whose results they rest on; ``imports`` of them bring content into the fabric.
        records: whose seals were checked; ``blobs`` whose bytes were read, ``bytes`` in all.
        given: artifacts that the run was given by upload or reference.
        broken: None where every link holds.
    """

    uid: str
    outputs: tuple[str, ...]
    steps: int = 0
    imports: int = 0
    records: int = 0
    blobs: int = 0
    bytes: int = 0
    given: int = 0
    broken: BrokenLink | None = None
