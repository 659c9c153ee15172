"""Revocation of content: what is asked for, and the signed report of what was done."""

import msgspec


class RevokeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/revoke``.

    Attributes:
        target: the identity of an artifact, a reference to it, or ``RUN/OUTPUT``.
    """

    target: str


class RemainingContent(msgspec.Struct, frozen=True):
    """What a revocation does not delete: how many, of what, and why."""

    what: str
    count: int
    reason: str


class RevocationReport(msgspec.Struct, frozen=True):
    """What a revocation found and deleted, or would.

    Attributes:
        identity: of the artifact, of this ``kind``.
        namespace: in whose scopes; all where empty.
        revoked_s: when, in seconds since the epoch (UTC).
        generation: how often this content has been revoked there.
        dry_run: whether nothing was done; the numbers are what would have been.
        found: what is derived, the artifact included: ``results`` of actions, artifacts by kind,
            ``runs`` that used or made any of it, ``steps`` of theirs whose logs go.
        deleted: ``results``, ``blobs``, and ``bytes`` of these.
        remaining: what stays, and why.
        workers_asked: connected workers that delete it from their disks.
        workers_not_connected: workers that made results of it and are not connected: they are asked
            when they connect again.
        not_reached: copies that no revocation reaches.
    """

    identity: str
    kind: str
    namespace: str
    revoked_s: float
    generation: int
    dry_run: bool
    found: dict[str, int] = {}
    deleted: dict[str, int] = {}
    remaining: tuple[RemainingContent, ...] = ()
    workers_asked: tuple[str, ...] = ()
    workers_not_connected: tuple[str, ...] = ()
    not_reached: tuple[str, ...] = ()


class RevocationAnswer(msgspec.Struct, frozen=True):
    """The response to ``POST /v1/revoke``.

    Attributes:
        report: what was done.
        document: the report as a line of JSON, and a line with its signature: a DSSE envelope
            without its payload, as at the end of a segment of the request log.
    """

    report: RevocationReport
    document: str
