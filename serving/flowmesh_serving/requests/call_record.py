"""Where a request ran, and for how long: what its status says of it after its end."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from flowmesh_core.protocol.serving import CallEnded, StageProgress
from flowmesh_core.stages.route import RequestRoute

_SECONDS_MAX = 1e6


class CallRecord(NamedTuple):
    """A call of a request at a replica.

    Attributes:
        stage: of a service with stages; empty for a call without.
        replica: that had it last.
        times: seconds that it waited at its worker, and ran there; None where they are not known.
    """

    stage: str
    replica: str
    times: tuple[float, float] | None = None


def call_record(replica: str, ended: CallEnded | None) -> tuple[CallRecord, ...]:
    """Returns the call of a request without stages; none where no replica had it.

    Args:
        replica: that had it last; empty for none.
        ended: what it said at the end; None where it did not. A hub is not believed about times
            that no call has.
    """
    if not replica:
        return ()
    times = None if ended is None or not ended.times else ended.times[0]
    return (CallRecord("", replica, times if times and _are_seconds(times) else None),)


def stage_records(
    route: RequestRoute, found: Mapping[str, StageProgress]
) -> tuple[CallRecord, ...]:
    """Returns the stages of a request, in the graph's order.

    Args:
        route: its last one.
        found: by stage, what hubs have said; a stage that they did not time has no times.
    """
    records = []
    for place in route.stages:
        said = found.get(place.stage)
        times = None if said is None else (said.queue_s, said.compute_s)
        known = times if times and sum(times) > 0 else None
        records.append(CallRecord(place.stage, place.replica_id, known))
    return tuple(records)


def _are_seconds(times: tuple[float, float]) -> bool:
    return all(math.isfinite(s) and 0 <= s <= _SECONDS_MAX for s in times)
