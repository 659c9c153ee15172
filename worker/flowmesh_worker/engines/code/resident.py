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
    RunIteration,
    ToSandbox,
    sent_result,
)
from flowmesh_worker.engines.code.iterating_code import StepResults
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


def _step(code: ComponentCode, message: RunIteration, descriptors: DescriptorSocket) -> StepResults:
    calls = [member.call for member in message.members]
    passed = [{} if call is None else _inputs(call, descriptors) for call in calls]
    return code.step(message.component, message.members, passed)


def _batch(code: ComponentCode, message: RunBatch, descriptors: DescriptorSocket) -> StepResults:
    passed = [_inputs(call, descriptors) for call in message.calls]
    return StepResults(code.run(message.component, message.calls, passed))


def _ended(ran: StepResults, descriptors: DescriptorSocket) -> BatchEnded:
    results = tuple(sent_result(result, descriptors) for result in ran.results)
    return BatchEnded(results, ran.start_s, ran.finish_s)


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
    connection.send(CodeLoaded("", tuple(lacks), level, code.iterating))
    own = os.getpid()
    while messages := connection.receive():
        for message in messages:
            if isinstance(message, RunBatch | RunIteration):
                if isinstance(message, RunBatch):
                    ran = _batch(code, message, descriptors)
                else:
                    ran = _step(code, message, descriptors)
                if os.getpid() != own:  # the code forked, and the child returned too
                    os._exit(0)
                connection.send(_ended(ran, descriptors))
                del ran  # an idle component keeps no memory of its last batch
                code.prepare()
            elif isinstance(message, ForgetResults):
                code.forget(message.keys)
    os._exit(0)


if __name__ == "__main__":
    main()
