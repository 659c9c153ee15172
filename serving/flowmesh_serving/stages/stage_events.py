"""What a client of a service with stages gets: the reply, and events of an answer as it is made."""

from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_core.stages.stage_calls import COMPLETION, FINISH_REASON
from flowmesh_core.stages.values import REQUEST

_DATA, _DONE = b"data: ", b"[DONE]"
_json = msgspec.json.Decoder()


class StreamedText:
    """Reads the engine's events of one answer.

    Attributes:
        text: of all events so far.
        finish_reason: of the answer; None before its end.
    """

    def __init__(self, stage: str) -> None:
        """Reads the answer of this stage."""
        self._stage = stage
        self.text = ""
        self.finish_reason: str | None = None

    def events(self, data: bytes) -> bytes:
        """Returns the client's events for some of the engine's."""
        out = b""
        for line in data.split(b"\n"):
            if line.startswith(_DATA) and not line.endswith(_DONE):
                text = self._read(decode(_json, line[len(_DATA) :]))
                if text:
                    out += event("text", {"stage": self._stage, "text": text})
        return out

    def value(self) -> dict[str, Any]:
        """Returns the stage's value."""
        return {COMPLETION: self.text, FINISH_REASON: self.finish_reason}

    def _read(self, chunk: Mapping[str, Any]) -> str:
        text = ""
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", choice)
            text += delta.get("content") or delta.get("text") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.text += text
        return text


def event(name: str, value: object) -> bytes:
    """Returns a server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


def reply_of(
    graph: LoadedGraph,
    request: Mapping[str, Any],
    values: Mapping[str, bytes],
    streamed: StreamedText | None,
) -> dict[str, Any]:
    """Returns the reply.

    Args:
        graph: of the service.
        request: of the client.
        values: of the stages that the reply reads, as JSON.
        streamed: the answer that was streamed; None where none was.

    Raises:
        MissingValueError: a stage's value has not what the reply reads of it.
    """
    found: dict[str, Any] = {}
    for name, reference in graph.reply.items():
        source = reference.source
        if not reference.path and values.get(source):
            found[name] = msgspec.Raw(values[source])
        elif source == REQUEST:
            found[name] = reference.of({source: request})
        elif values[source]:
            found[name] = reference.of({source: decode(_json, values[source])})
        else:
            assert streamed is not None, "only a streamed answer has no value"
            found[name] = reference.of({source: streamed.value()})
    return found
