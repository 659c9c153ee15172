"""Sends values of a hub's stages to other hubs and to the router."""

from collections.abc import Callable

import msgspec

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import VALUE_BYTES_MAX, PassedValue, PeerValue, StageValue
from flowmesh_core.stages.service_graph import REPLY
from flowmesh_worker.ipc.passed_values import size_of
from flowmesh_worker.ipc.shared_value import SharedValue
from flowmesh_worker.serving.passed_bytes import PEER, RELAY, PassedBytes
from flowmesh_worker.serving.peer_link import Delivery
from flowmesh_worker.serving.peer_links import PeerLinks
from flowmesh_worker.serving.stage_values import StageData
from flowmesh_worker.serving.staged_request import StagedRequest


class ValueSender:
    """Sends a value directly where the router has named the hub as a peer, else to the router."""

    def __init__(
        self,
        peers: PeerLinks,
        passed: PassedBytes,
        failed: Callable[[StagedRequest, str, OpenAiError], None],
    ) -> None:
        """Sends nothing yet.

        Args:
            peers: links to hubs of other workers.
            passed: counts what is sent.
            failed: called with a stage whose value cannot be sent, at once or later.
        """
        self._peers = peers
        self._passed = passed
        self._failed = failed

    def send(self, request: StagedRequest, consumer: str, stage: str, data: StageData) -> None:
        """Sends the value of a stage.

        Args:
            request: that has it.
            consumer: the stage that needs it, of another worker, or ``reply``.
            stage: that made it.
            data: the value.
        """
        run, value = request.run, data.packed or data.body
        place = request.plan.places.get(consumer)
        address = None if place is None else run.peers.get(place.worker)
        if place is None or address is None:
            self._relay(request, consumer, stage, data)
            return
        message = PeerValue(run.request_id, request.version, consumer, stage, PassedValue())
        request.peers.add(place.worker)
        self._peers.send(
            place.worker,
            address,
            Delivery(
                message,
                value,
                lambda: self._relay(request, consumer, stage, data),
                lambda: self._passed.count(request.link, PEER, size_of(value)),
            ),
        )

    def _relay(self, request: StagedRequest, consumer: str, stage: str, data: StageData) -> None:
        value = data.packed or data.body
        if size_of(value) > VALUE_BYTES_MAX:
            text = f"the value of stage {stage} has {size_of(value)} bytes"
            why = OpenAiError(f"{text}, of at most {VALUE_BYTES_MAX}", code="value_too_large")
            self._failed(request, stage, why)
            return
        body = value.read() if isinstance(value, SharedValue) else bytes(value)
        if consumer != REPLY:
            self._passed.count(request.link, RELAY, len(body))
        message = StageValue(request.run.request_id, request.version, consumer, stage, body)
        request.link.send(message)


def error_body(error: Exception) -> bytes:
    """Returns an error object in OpenAI's shape."""
    if not isinstance(error, OpenAiError):
        error = OpenAiError(str(error), code="invalid_value")
    return msgspec.json.encode(error.body())
