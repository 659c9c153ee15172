"""What a client of a service with stages gets: the reply, and events of an answer as it is made."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import VALUE_BYTES_MAX
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_core.stages.stage_calls import COMPLETION, FINISH_REASON
from flowmesh_core.stages.values import REQUEST
from flowmesh_serving.errors import unreadable_answer

_DATA, _DONE = b"data: ", b"[DONE]"
_STOP = "stop"
_FINISH_REASONS = frozenset({_STOP, "length", "content_filter"})
_json = msgspec.json.Decoder()
_any_json = msgspec.json.Decoder(msgspec.Raw)


class _Delta(msgspec.Struct):
    content: str | None = None
    text: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: tuple[_Choice, ...] = ()


_chunks = msgspec.json.Decoder(_Chunk)


class StreamedText:
    """Reads the engine's events of one answer.

    Attributes:
        finish_reason: of the answer; None before its end.
    """

    def __init__(self, stage: str) -> None:
        """Reads the answer of this stage."""
        self._stage = stage
        self._texts: list[str] = []
        self._characters = 0
        self.finish_reason: str | None = None

    def texts(self, data: bytes) -> list[str]:
        """Returns the texts of some of the engine's events.

        Raises:
            OpenAiError: they are not such events, or the answer is too long.
        """
        found = []
        for line in data.split(b"\n"):
            if line.startswith(_DATA) and not line.endswith(_DONE):
                text = self._read(line[len(_DATA) :])
                if text:
                    found.append(text)
        return found

    def value(self) -> dict[str, Any]:
        """Returns the stage's value."""
        return {COMPLETION: "".join(self._texts), FINISH_REASON: self.finish_reason}

    def _read(self, data: bytes) -> str:
        try:
            chunk = decode(_chunks, data)
        except msgspec.DecodeError:
            raise unreadable_answer(self._stage) from None
        text = ""
        for choice in chunk.choices:
            if choice.delta is not None:
                text += choice.delta.content or choice.delta.text or ""
            text += choice.text or ""
            self.finish_reason = choice.finish_reason or self.finish_reason
        self._texts.append(text)
        self._characters += len(text)
        if self._characters > VALUE_BYTES_MAX:
            why = f"The answer of stage {self._stage} is longer than {VALUE_BYTES_MAX} characters."
            raise OpenAiError(why, type="server_error", code="value_too_large", status=500)
        return text


class StageReply(NamedTuple):
    """The reply of a request.

    Attributes:
        fields: by name.
        finish_reason: of the answer to a chat: OpenAI's word, ``stop`` where no engine says one.
    """

    fields: dict[str, Any]
    finish_reason: str = _STOP


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
        FlowMeshError: a stage's value is not JSON, or has not what the reply reads of it.
    """
    found: dict[str, Any] = {}
    for name, reference in graph.reply.items():
        source = reference.source
        if not reference.path and values.get(source):
            # Whole: it must not end the reply's field and write those of other stages.
            found[name] = _decoded(_any_json, values[source], source)
        elif source == REQUEST:
            found[name] = reference.of({source: request})
        elif values[source]:
            found[name] = reference.of({source: _decoded(_json, values[source], source)})
        elif streamed is None:
            raise FlowMeshError(f"the value of stage {source} is empty")
        else:
            found[name] = reference.of({source: streamed.value()})
    return found


def finish_reason_of(
    graph: LoadedGraph, field: str, values: Mapping[str, bytes], streamed: StreamedText
) -> str:
    """Returns why an answer has ended: what its engine says, else that it is complete.

    Args:
        graph: of the service.
        field: of the reply, which is the answer.
        values: of the stages that the reply reads, as JSON.
        streamed: the answer that was streamed.
    """
    reference = graph.reply[field]
    found: Any = None
    if reference.path == (COMPLETION,) and reference.source != REQUEST:
        data = values[reference.source]
        value = _decoded(_json, data, reference.source) if data else streamed.value()
        found = value.get(FINISH_REASON)
    return found if found in _FINISH_REASONS else _STOP


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes, stage: str) -> Any:
    """Returns a value as it is decoded.

    Raises:
        FlowMeshError: it is not JSON.
    """
    try:
        return decode(decoder, data)
    except msgspec.DecodeError as error:
        raise FlowMeshError(f"the value of stage {stage} is not JSON: {error}") from None
