"""Checks a router's report: a router is trusted less than the control plane.

What the plan does not have, or no honest router would say, is left out; the rest counts.
"""

import math
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from flowmesh_core.protocol.router_reports import (
    ROUTER_NAME_CHARS_MAX,
    ReplicaProfile,
    RouterReport,
    ServiceReport,
)
from flowmesh_core.serving.latency_sketch import BUCKETS

COUNT_MAX = 1 << 53
SIZES_MAX = 64
BATCH_MAX = 1 << 16
LENGTHS_MAX = 16
LENGTH_MAX = 1e6
SECONDS_MAX = 86_400.0


class CheckedReport(msgspec.Struct, frozen=True):
    """What of a report counts.

    Attributes:
        ignored: services and profiles that were left out; 1 where nothing counts.
    """

    report: RouterReport | None
    ignored: int = 0


def check_report(report: RouterReport, placed: Mapping[str, Mapping[str, str]]) -> CheckedReport:
    """Returns what of a report counts.

    Args:
        report: as a router sent it.
        placed: service → the worker of each of its replicas, by the replica's id.
    """
    name_fits = 0 < len(report.router) <= ROUTER_NAME_CHARS_MAX
    if not name_fits or not math.isfinite(report.age_s) or report.age_s < 0:
        return CheckedReport(None, 1)
    services: dict[str, ServiceReport] = {}
    ignored = 0
    for one in report.services:
        if one.service in services or one.service not in placed or not _counts_fit(one):
            ignored += 1
            continue
        known = placed[one.service]
        profiles = {p.replica_id: p for p in one.replicas if p.replica_id in known and _fits(p)}
        ignored += len(one.replicas) - len(profiles)
        services[one.service] = msgspec.structs.replace(one, replicas=tuple(profiles.values()))
    kept = msgspec.structs.replace(report, services=tuple(services.values()))
    return CheckedReport(kept, ignored)


def _counts_fit(one: ServiceReport) -> bool:
    counts = (one.came, one.ended, one.missed, one.refused, one.invalid, *one.latency)
    streams = (one.missed_ttft, one.missed_tpot, one.token_timed, one.in_flight)
    return (
        len(one.latency) <= BUCKETS
        and all(0 <= count <= COUNT_MAX for count in counts + streams)
        and one.missed <= one.ended
        and one.in_flight <= one.came
        and one.ended + one.refused + one.invalid <= one.came
        and sum(one.latency) <= one.ended
        and one.missed_tpot <= one.token_timed <= one.streamed <= one.came
        and one.missed_ttft <= one.streamed
    )


def _fits(profile: ReplicaProfile) -> bool:
    sizes, seconds = profile.sizes, profile.seconds
    return (
        0 < len(sizes) == len(seconds) <= SIZES_MAX
        and sizes[0] == 1
        and all(a < b for a, b in pairwise(sizes))
        and sizes[-1] <= BATCH_MAX
        and all(0 < s <= SECONDS_MAX for s in seconds)
        and 1 <= profile.cap <= BATCH_MAX
        and len(profile.call_lengths) <= LENGTHS_MAX
        and all(0 < length <= LENGTH_MAX for length in profile.call_lengths)
    )
