"""What a request to a service with stages has to satisfy, and what its hubs get of it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import RunStages
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.random_names import new_call_id
from flowmesh_serving.errors import (
    body_too_large,
    missing_field,
    no_priorities,
    unknown_service,
)
from flowmesh_serving.http.openai import HttpLimits
from flowmesh_serving.http.request_headers import PRIORITY_HEADER, seed, timeout_s
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.service_admission import ServiceAdmission
from flowmesh_serving.stages.staged_requests import UNROUTED

_MS = 1000
_bodies = msgspec.json.Decoder(dict)


class InvokeChecks:
    """The checks of ``:invoke``."""

    def __init__(
        self,
        services: ServiceTable,
        admission: ServiceAdmission,
        limits: HttpLimits,
        *,
        timed: bool,
    ) -> None:
        """Checks requests.

        Args:
            services: that take them.
            admission: of their callers.
            limits: of their bodies.
            timed: whether hubs say what stages take, for spans.
        """
        self._services = services
        self._admission = admission
        self._limits = limits
        self._timed = timed

    def graph(self, service: str, caller: Caller) -> LoadedGraph:
        """Returns the stages of a service.

        Raises:
            OpenAiError: there is none for this caller.
        """
        graph = self._services.graph(service)
        if graph is None or caller.service.service != service:
            raise unknown_service(service)
        return graph

    def admit(
        self,
        headers: Mapping[str, str],
        caller: Caller,
        graph: LoadedGraph,
        waited_s: float = 0.0,
    ) -> None:
        """Refuses a request with a priority, one that would be late, or takes others' places.

        Args:
            headers: of the request.
            caller: who sends it.
            graph: of the service.
            waited_s: what it has waited of its time.

        Raises:
            OpenAiError: it is refused.
        """
        if PRIORITY_HEADER in headers:
            raise no_priorities(caller.service.service)
        self._admission.check(caller, graph, self.budget_s(headers, caller) - waited_s)

    @staticmethod
    def budget_s(headers: Mapping[str, str], caller: Caller) -> float:
        """Returns within which time a reply is of use.

        Raises:
            OpenAiError: the timeout of the request is not a number.
        """
        within_s = timeout_s(headers, caller.service.timeout_s)
        return min(within_s, caller.service.slo_s) if caller.service.slo_s else within_s

    def limit_bytes(self, caller: Caller) -> int:
        """Returns the size of the largest body."""
        return min(self._limits.body_bytes, caller.service.request_bytes_max)

    def fields(self, body: bytes, caller: Caller, graph: LoadedGraph) -> Mapping[str, Any]:
        """Returns the request; its schema is checked apart.

        Raises:
            OpenAiError: it is too large, or not an object with the fields that stages read.
        """
        if len(body) > (limit := self.limit_bytes(caller)):
            raise body_too_large(limit)
        try:
            fields = decode(_bodies, body)
        except msgspec.DecodeError as error:
            text = f"The request's body is not a JSON object: {error}"
            raise OpenAiError(text, code="invalid_json") from None
        for name in graph.request_fields:
            if name not in fields:
                raise missing_field(name)
        return fields

    def run(
        self,
        headers: Mapping[str, str],
        caller: Caller,
        body: bytes,
        waited_s: float = 0.0,
        *,
        stream: bool = False,
    ) -> RunStages:
        """Returns what hubs get of a request.

        Args:
            headers: of the request.
            caller: who sends it.
            body: the service's request.
            waited_s: what it has waited of its time.
            stream: whether the answer is wanted as it is made.

        Raises:
            OpenAiError: its timeout is not a number.
        """
        slo_s = caller.service.slo_s
        return RunStages(
            request_id=new_call_id(),
            graph="",
            route=UNROUTED,
            request=body,
            budget_ms=max(0, int((timeout_s(headers, caller.service.timeout_s) - waited_s) * _MS)),
            slo_ms=max(1, round(slo_s * _MS)) if slo_s else 0,  # a target below 1 ms stays one
            tenant=caller.namespace,
            seed=seed(headers, caller),
            stream=stream,
            timed=self._timed,
        )
