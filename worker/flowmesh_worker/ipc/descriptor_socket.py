"""Passes descriptors beside a channel, which itself can only carry bytes.

The event loop's transports drop descriptors, so they have a socket of their own: one packet a
descriptor, with a number that the message on the channel names. A descriptor is sent before its
message, so it is there when the message is read, and reading it never waits. The packet of a value
in a reusable file has its size, too.
"""

import asyncio
import contextlib
import os
import socket
import struct
import weakref

from flowmesh_core.errors import ProtocolError
from flowmesh_worker.ipc.shared_value import SharedValue

DESCRIPTORS_MAX = 256
"""Values of one connection that are open here at once; further ones are refused."""
_NUMBER = struct.Struct(">Q")
_SIZE = struct.Struct(">Q")
_PEER = struct.Struct("3i")
"""``struct ucred``: process, user, group."""
_UNUSED_MAX = 1024
"""Descriptors that may come before one that a message names."""
_ACCEPT_WITHIN_S = 10.0
_INTRODUCTION = b"d"


class DescriptorSocket:
    """One end.

    Attributes:
        accepts_reusable: whether values in reusable files pass here, from the other end and to it:
            it is a process of this user, and none that runs code which is not trusted.
    """

    def __init__(self, connection: socket.socket, *, accepts_reusable: bool = False) -> None:
        """Owns an end of a pair that :func:`descriptor_pair` returned."""
        connection.setblocking(False)
        self._connection = connection
        self.accepts_reusable = accepts_reusable
        self._sent = 0
        self._open: weakref.WeakSet[SharedValue] = weakref.WeakSet()

    def send(self, value: SharedValue) -> int:
        """Returns the number of a value that is on its way; 0 where it cannot pass now."""
        packet = _NUMBER.pack(self._sent + 1)
        if not value.is_sealed:
            packet += _SIZE.pack(value.size)
        try:
            socket.send_fds(self._connection, [packet], [value.fileno()])
        except OSError:  # the other end has not read what came before, or is gone
            return 0
        self._sent += 1
        return self._sent

    def receive(self, number: int) -> SharedValue:
        """Returns the value with a number; those before it are closed.

        Raises:
            ProtocolError: the other end has not sent it, or it is not a value that may be read, or
                too many are open.
        """
        for _ in range(_UNUSED_MAX):
            found, size, descriptor = self._packet()
            if found != number:
                os.close(descriptor)
                if found > number:
                    break
                continue
            value = SharedValue.received(descriptor, size, accepts_reusable=self.accepts_reusable)
            if len(self._open) >= DESCRIPTORS_MAX:
                raise ProtocolError(f"more than {DESCRIPTORS_MAX} values of a connection are open")
            self._open.add(value)
            return value
        raise ProtocolError(f"value {number} was not passed")

    def close(self) -> None:
        """Closes it; values that were received stay open."""
        self._connection.close()

    def _packet(self) -> tuple[int, int, int]:
        """Returns the next number, size (0 where it has none) and descriptor."""
        long = _NUMBER.size + _SIZE.size
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                self._connection, long + 1, 1, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            raise ProtocolError("a value that a message names was not passed") from None
        is_whole = not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        if len(data) not in {_NUMBER.size, long} or len(descriptors) != 1 or not is_whole:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ProtocolError("a value was passed in another way than one descriptor a packet")
        size = _SIZE.unpack_from(data, _NUMBER.size)[0] if len(data) == long else 0
        return int(_NUMBER.unpack_from(data)[0]), int(size), descriptors[0]


def descriptor_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def connect_with_descriptors(path: str) -> tuple[socket.socket, DescriptorSocket]:
    """Connects to a socket whose server calls :func:`accept_with_descriptors`.

    Raises:
        OSError: nothing listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, path)
        accepts = _is_of_this_user(connection)
        return connection, give_descriptors(connection, accepts_reusable=accepts)
    except BaseException:
        connection.close()
        raise


def give_descriptors(
    connection: socket.socket, *, accepts_reusable: bool = False
) -> DescriptorSocket:
    """Gives the other end of a connected Unix socket a socket for values, before anything else.

    Args:
        connection: a connected Unix socket.
        accepts_reusable: see ``DescriptorSocket``.

    Raises:
        OSError: the other end is gone.
    """
    ours, theirs = descriptor_pair()
    try:
        socket.send_fds(connection, [_INTRODUCTION], [theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return DescriptorSocket(ours, accepts_reusable=accepts_reusable)


def take_descriptors(
    connection: socket.socket, *, accepts_reusable: bool = False
) -> DescriptorSocket:
    """Returns the other end of what :func:`give_descriptors` gave; waits on a blocking socket.

    Args:
        connection: a connected Unix socket.
        accepts_reusable: see ``DescriptorSocket``.

    Raises:
        OSError: the other end is gone, or sends something else.
    """
    data, descriptors, _, _ = socket.recv_fds(connection, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if data == _INTRODUCTION and len(descriptors) == 1:
        with contextlib.suppress(OSError):
            values = socket.socket(fileno=descriptors[0])
            return DescriptorSocket(values, accepts_reusable=accepts_reusable)
    for descriptor in descriptors:
        os.close(descriptor)
    raise OSError("the client of a socket for calls passes no descriptor: expected one first")


async def accept_with_descriptors(connection: socket.socket) -> DescriptorSocket:
    """Returns the other end of what :func:`connect_with_descriptors` connected.

    Raises:
        OSError: the client is gone, or sends something else; ``TimeoutError`` where it is silent.
    """
    connection.setblocking(False)
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(connection, readable.set)
    try:
        async with asyncio.timeout(_ACCEPT_WITHIN_S):
            await readable.wait()
    finally:
        loop.remove_reader(connection)
    return take_descriptors(connection, accepts_reusable=_is_of_this_user(connection))


def _is_of_this_user(connection: socket.socket) -> bool:
    """Returns whether the other end of a Unix socket could write this process's memory anyway."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(found)[1] == os.geteuid())
