"""Passes the frames of hubs to the calls and to the requests that they are for."""

from flowmesh_core.protocol.serving import (
    Piece,
    ReplicaLoads,
    StageFailed,
    StageReport,
    StageValue,
)
from flowmesh_serving.calls.calls import Calls
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.links.hub_link import Defect, FromHubCall, HubLink
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.stages.stage_questions import StageQuestions
from flowmesh_serving.stages.staged_requests import StagedRequests


class HubFrames:
    """The ``HubListener`` of a router."""

    def __init__(
        self,
        replicas: ReplicaTable,
        calls: Calls,
        staged: StagedRequests,
        questions: StageQuestions,
        metrics: RouterMetrics,
    ) -> None:
        self._replicas = replicas
        self._calls = calls
        self._staged = staged
        self._questions = questions
        self._metrics = metrics

    def loads_changed(self, link: HubLink, loads: ReplicaLoads) -> None:
        """See ``HubListener.loads_changed``."""
        if self._replicas.update(link, loads.replicas):
            self._calls.arrivals.happened()
        self._metrics.count_passed(loads.passed_bytes)
        self._metrics.count_dropped(loads.dropped_values)
        for load in loads.replicas if loads.times else ():
            replica = self._replicas.of(load.service).get(load.replica_id)
            times = loads.times.get(load.replica_id)
            if replica is not None and replica.link is link and times is not None:
                self._metrics.count_times(load.service, replica.component, times)

    def reply(self, link: HubLink, message: FromHubCall) -> Defect:
        """See ``HubListener.reply``."""
        match message:
            case StageValue() | StageFailed():
                return self._staged.reply(link, message)
            case StageReport():
                return self._questions.reply(link, message)
            case Piece(call_id=call_id) if call_id in self._staged:
                return self._staged.reply(link, message)
            case _:
                return self._calls.reply(link, message)

    def lost(self, link: HubLink) -> None:
        """See ``HubListener.lost``."""
        self._replicas.remove(link)
        self._calls.lost(link)
        self._staged.lost(link)
        self._questions.lost(link)
