"""What routers report to the control plane: requests by service, and profiles of replicas.

A router of a cluster sends a report every few seconds (``POST /v1/router``); on a laptop it writes
it to a file, which ``fmesh serve`` sends. Counts are totals since the router began, so a report
that is lost is made up by the next, and one that comes twice counts once. Fields are added at the
end, with a default.
"""

import msgspec

EVERY_S = 5.0
"""The time between two reports of a router."""
REPORT_BYTES_MAX = 4 << 20
ROUTER_NAME_CHARS_MAX = 64


class ReplicaProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hub has measured of a replica whose calls generate no tokens.

    Attributes:
        sizes: batch sizes that were measured, ascending from 1.
        seconds: of a batch, for each of them; of an engine, of a call while so many run.
        cap: the largest batch that is formed; of an engine, calls that run at once.
        call_lengths: as of ``ReplicaLoad``.
    """

    replica_id: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    cap: int
    call_lengths: tuple[float, ...] = ()


class ServiceReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requests of one service at a router, in total.

    Attributes:
        service: ``namespace/name``.
        came: all requests, also those that have not ended.
        ended: those that were answered or failed, and those that their client gave up after the
            latency target.
        missed: of those that ended, the ones that took longer than the latency target.
        refused: those that were not taken, as there was no place for them or no replica.
        latency: of those that were answered, their number by bucket of ``latency_sketch``; buckets
            at the end without a request are left out.
        replicas: the profiles of its replicas, as their hubs reported them last.
        invalid: those that no replica is asked for: that their caller has to change (4xx, but for
            429), or that got the reply of an equal one by their idempotency key.
        streamed: those whose answer has begun as a stream.
        missed_ttft: of those, the ones whose first event came after its target.
        token_timed: streams that have ended with at least two tokens.
        missed_tpot: of those, the ones whose time per token is above its target.
        in_flight: requests that have not ended now.
    """

    service: str
    came: int = 0
    ended: int = 0
    missed: int = 0
    refused: int = 0
    latency: tuple[int, ...] = ()
    replicas: tuple[ReplicaProfile, ...] = ()
    invalid: int = 0
    streamed: int = 0
    missed_ttft: int = 0
    token_timed: int = 0
    missed_tpot: int = 0
    in_flight: int = 0


class RouterReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report.

    Attributes:
        router: unique per process of a router.
        age_s: seconds since the router began to count.
        services: those that had a request, or have a profile.
    """

    router: str
    age_s: float
    services: tuple[ServiceReport, ...] = ()
