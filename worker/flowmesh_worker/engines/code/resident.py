"""The resident sandbox: loads users' code once and runs batches until its host closes it.

``python -m flowmesh_worker.engines.code.resident FD PARENT`` is started by :mod:`resident_process`.
It reads its limits from standard input. The component host has the other end of the socket ``FD``,
over which it first gives the sandbox another one, for values. The sandbox is that of a call of
``code.python``, without network, files or credentials; only its
processor time is limited by batch, by its host.
"""

import os
import socket
import struct
import sys

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.code import sandbox
from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    BatchEnded,
    CodeLoaded,
    ForgetResults,
    LoadCode,
    RunBatch,
    ToSandbox,
    sent_result,
)
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, take_descriptors
from flowmesh_worker.ipc.parent_death import die_with_parent
from flowmesh_worker.ipc.passed_values import StageBytes, mapped, receive_value
from flowmesh_worker.ipc.spare_files import SpareFiles

_LENGTH = struct.Struct(">I")
_messages = msgspec.msgpack.Decoder(list[ToSandbox])
_requests = msgspec.msgpack.Decoder(SandboxRequest)


class _Connection:
    """The socket, read and written without an event loop."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._file = self._socket.makefile("rwb")

    def take_descriptors(self) -> DescriptorSocket:
        """Returns the socket for values, which the host gives before its first message."""
        return take_descriptors(self._socket, accepts_reusable=True)

    def receive(self) -> list[ToSandbox]:
        """Returns the next messages; none once the host is gone."""
        head = self._file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return []
        return decode(_messages, self._file.read(_LENGTH.unpack(head)[0]))

    def send(self, message: CodeLoaded | BatchEnded) -> None:
        body = msgspec.msgpack.encode([message])
        self._file.write(_LENGTH.pack(len(body)) + body)
        self._file.flush()


def _inputs(call: BatchCall, descriptors: DescriptorSocket) -> dict[str, StageBytes]:
    """Returns what components of other hosts have made; descriptors are few here."""
    return {name: mapped(receive_value(one, descriptors)) for name, one in call.passed.items()}


def main() -> None:
    """Enters the sandbox, loads the code, and runs batches."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    level, lacks = sandbox.enter(decode(_requests, sys.stdin.buffer.read()))
    connection = _Connection(descriptor)
    descriptors = connection.take_descriptors()
    (load,) = connection.receive()
    assert isinstance(load, LoadCode)
    try:
        code = ComponentCode(load.components, SpareFiles())
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        connection.send(CodeLoaded(text[:4_000], tuple(lacks), level))
        os._exit(0)
    connection.send(CodeLoaded("", tuple(lacks), level))
    own = os.getpid()
    while messages := connection.receive():
        for message in messages:
            if isinstance(message, RunBatch):
                passed = [_inputs(call, descriptors) for call in message.calls]
                results = code.run(message.component, message.calls, passed)
                if os.getpid() != own:  # the code forked, and the child returned too
                    os._exit(0)
                connection.send(BatchEnded(tuple(sent_result(r, descriptors) for r in results)))
                del passed, results  # an idle component keeps no memory of its last batch
                code.prepare()
            elif isinstance(message, ForgetResults):
                code.forget(message.keys)
    os._exit(0)


if __name__ == "__main__":
    main()
