"""The child that evaluates conditions."""

from collections.abc import Callable, Iterator

import msgspec

from flowmesh_control.evaluators.condition_messages import (
    CONDITION_S,
    ConditionReads,
    ConditionReply,
    ConditionRequest,
    Evaluated,
    ParseCondition,
)
from flowmesh_control.evaluators.confinement import limit_processor_time
from flowmesh_core.decoding import decode
from flowmesh_core.graph.cel import ConditionError
from flowmesh_core.graph.condition_reads import reads
from flowmesh_core.graph.conditions import verdict_of


def load() -> Callable[[bytes], Iterator[bytes]]:
    """Loads the library, and returns the function that answers a request."""
    reads("true")  # makes the parser
    decoder: msgspec.msgpack.Decoder[ConditionRequest] = msgspec.msgpack.Decoder(ConditionRequest)
    encoder = msgspec.msgpack.Encoder()

    def answer(data: bytes) -> Iterator[bytes]:
        limit_processor_time(CONDITION_S)
        yield encoder.encode(_reply(decode(decoder, data)))

    return answer


def _reply(request: ConditionRequest) -> ConditionReply:
    if not isinstance(request, ParseCondition):
        return Evaluated(verdict_of(request.query))
    try:
        return ConditionReads(reads(request.text).paths)
    except ConditionError:
        return ConditionReads(())  # its evaluation says what is wrong, and needs no value
