"""Limits the size of the messages that workers send, on both sides.

A worker splits what it reports into messages within the limits; the control plane refuses a larger
message before it decodes it. Decoding is what costs memory: a byte of MessagePack may become an
object of 72 bytes, so the values in a large message are counted first.
"""

from collections.abc import Sequence

import msgspec

from flowmesh_core.errors import FailureKind, ProtocolError
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    FailureReport,
    Hello,
    Sync,
    encode,
)

MESSAGE_BYTES_MAX = 16 << 20
"""The largest message. Receiving one takes three times its size for a moment."""
VALUES_MAX = 700_000
"""Values in one message: enough for the manifest of a data set with as many chunks as allowed."""
COUNT_FROM_BYTES = 1 << 20
"""A smaller message is decoded uncounted: it becomes 72 MiB at most."""
ENDS_MAX = 256
"""Ends of attempts that a worker puts into one message."""

_WIDTH_UNKNOWN = 0


class MessageTooLargeError(ProtocolError):
    """A worker's full state does not fit into a message."""


def _widths() -> tuple[int, ...]:
    """Returns the bytes of a MessagePack value by its first byte, of a container its header's."""
    widths = [1] * 256
    for length in range(32):
        widths[0xA0 + length] = 1 + length  # short strings
    for first in (0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xD9, 0xDA, 0xDB):
        widths[first] = _WIDTH_UNKNOWN  # a length follows
    numbers = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}
    numbers |= {0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    extensions = {0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
    containers = {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
    for first, width in (numbers | extensions | containers).items():
        widths[first] = width
    return tuple(widths)


_WIDTHS = _widths()
_LENGTHS = {
    0xC4: (1, 2),
    0xC5: (2, 3),
    0xC6: (4, 5),
    0xC7: (1, 3),
    0xC8: (2, 4),
    0xC9: (4, 6),
    0xD9: (1, 2),
    0xDA: (2, 3),
    0xDB: (4, 5),
}
"""By the first byte of a value with a length: bytes of the length, and of the whole header."""


def values_in(data: bytes, most: int) -> int:
    """Returns how many values MessagePack data has, keys included; stops beyond ``most``.

    Nothing is decoded and nothing kept. Of data that is not MessagePack the number means nothing.
    """
    at, end, count, widths = 0, len(data), 0, _WIDTHS
    while at < end and count <= most:
        count += 1
        first = data[at]
        width = widths[first]
        if not width:
            size, header = _LENGTHS[first]
            width = header + int.from_bytes(data[at + 1 : at + 1 + size], "big")
        at += width
    return count


def fits(data: bytes) -> bool:
    """Whether a message is within the limits."""
    size = len(data)
    return size < COUNT_FROM_BYTES or (
        size <= MESSAGE_BYTES_MAX and values_in(data, VALUES_MAX) <= VALUES_MAX
    )


def sync_frames(sync: Sync) -> list[bytes]:
    """Returns a report as messages within the limits, numbered from its ``seq``."""
    if len(sync.ended) <= ENDS_MAX:
        data = encode(sync)
        if fits(data):
            return [data]
    messages = [msgspec.structs.replace(sync, ended=(), goodbye=False)]
    for at in range(0, len(sync.ended), ENDS_MAX):
        ends = sync.ended[at : at + ENDS_MAX]
        part = Sync(sync.seq, ended=ends, draining=sync.draining, store_problem=sync.store_problem)
        messages += _split(part)
    messages[-1] = msgspec.structs.replace(messages[-1], goodbye=sync.goodbye)
    return [
        encode(msgspec.structs.replace(message, seq=sync.seq + n))
        for n, message in enumerate(messages)
    ]


def _split(sync: Sync) -> list[Sync]:
    """Halves a report of ends until each part is within the limits."""
    data, ends = encode(sync), sync.ended
    if fits(data):
        return [sync]
    if len(ends) == 1:
        return [msgspec.structs.replace(sync, ended=(_too_large(ends[0], data),))]
    half = len(ends) // 2
    parts = (msgspec.structs.replace(sync, ended=part) for part in (ends[:half], ends[half:]))
    return [message for part in parts for message in _split(part)]


def _too_large(end: AttemptEnd, data: bytes) -> AttemptEnd:
    """Returns the failure of an attempt whose own report no message can hold."""
    values = values_in(data, len(data))
    failure = FailureReport(
        kind=FailureKind.ENGINE,
        message=f"the report of the attempt has {len(data):,} bytes and {values:,} values, of at "
        f"most {MESSAGE_BYTES_MAX:,} and {VALUES_MAX:,}",
        remedy="make the step's outputs smaller: a data set of fewer chunks, or metrics of fewer "
        "values",
    )
    return msgspec.structs.replace(end, outputs={}, inline={}, failure=failure, log="")


def hello_frame(hello: Hello) -> tuple[bytes, Sequence[AttemptEnd]]:
    """Returns a full state as one message, and the ends that do not fit into it.

    Their attempts are in it as attempts that store their outputs, so that the control plane does
    not take them for lost; the ends are to be reported next.

    Raises:
        MessageTooLargeError: it is too large without any end.
    """
    count = min(len(hello.ended), ENDS_MAX)
    while True:
        rest = hello.ended[count:]
        storing = tuple(AttemptProgress(e.attempt_id, "storing", token=e.token) for e in rest)
        message = msgspec.structs.replace(
            hello, attempts=hello.attempts + storing, ended=hello.ended[:count]
        )
        data = encode(message)
        if fits(data):
            return data, rest
        if not count:
            raise MessageTooLargeError(
                f"the worker's full state has {len(data):,} bytes, of at most "
                f"{MESSAGE_BYTES_MAX:,}",
                remedy="restart the worker; its attempts begin anew elsewhere",
            )
        count //= 2
