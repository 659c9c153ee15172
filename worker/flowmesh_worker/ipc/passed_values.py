"""Sends and receives values of stages over a channel with a socket for descriptors beside it."""

import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import VALUE_BYTES_MAX, PassedValue
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.ipc.shared_value import SharedValue

StageBytes = SharedValue | bytes | memoryview
"""A value of a stage, as this process has it."""
NO_VALUES: Mapping[str, StageBytes] = MappingProxyType({})


def size_of(value: StageBytes) -> int:
    """Returns the bytes of a value."""
    return value.size if isinstance(value, SharedValue) else len(value)


def send_value(
    value: StageBytes, descriptors: DescriptorSocket | None, path: tuple[str, ...] = ()
) -> PassedValue:
    """Sends a value's descriptor, and returns what names it in the next message.

    Without a socket for descriptors, to another machine, the message has the value itself.

    Raises:
        ProtocolError: no descriptor can pass now, and the value is too large for the message.
    """
    if not isinstance(value, SharedValue):
        return PassedValue(bytes(value), 0, path)
    if descriptors is None:
        return PassedValue(value.read(), 0, path)
    shareable = _shareable(value, descriptors)
    if shareable is not None and (number := descriptors.send(shareable)):
        return PassedValue(b"", number, path)
    if value.size > VALUE_BYTES_MAX:
        raise ProtocolError(
            f"a value of {value.size} bytes cannot pass as shared memory: expected at most"
            f" {VALUE_BYTES_MAX} without"
        )
    return PassedValue(value.read(), 0, path)


def _shareable(value: SharedValue, descriptors: DescriptorSocket) -> SharedValue | None:
    """Returns a value that the other end accepts; None where memory for a copy lacks.

    A value in a reusable file is copied where the other end is another user's.
    """
    if not value.is_reusable or descriptors.accepts_reusable:
        return value
    try:
        return SharedValue.sealed([value.view()])
    except OSError:
        return None


def receive_value(passed: PassedValue, descriptors: DescriptorSocket) -> StageBytes:
    """Returns a value that a message names.

    Raises:
        ProtocolError: what was passed is not a value that may be read.
    """
    return descriptors.receive(passed.number) if passed.number else passed.data


def mapped(value: StageBytes) -> StageBytes:
    """Returns a value as memory, so that its descriptor is closed; itself where that is refused."""
    if isinstance(value, SharedValue):
        with contextlib.suppress(OSError):
            return value.view()
    return value


def receive_values(
    passed: Mapping[str, PassedValue], descriptors: DescriptorSocket
) -> dict[str, StageBytes]:
    """Returns all values that a message names.

    Raises:
        ProtocolError: as :func:`receive_value`.
    """
    return {name: receive_value(one, descriptors) for name, one in passed.items()}
